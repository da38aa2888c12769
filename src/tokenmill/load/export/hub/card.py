"""The dataset card of an export on the Hub: README.md, which names no file of this machine."""

from __future__ import annotations

import contextlib

import numpy as np

from tokenmill.core.errors import TokenmillError
from tokenmill.core.installed import installed_version
from tokenmill.core.values import counted
from tokenmill.read.places.hub.names import DEFAULT_REVISION, PREFIX, HubName, parse_hub_name
from tokenmill.store.canonical import read_sealed
from tokenmill.store.dataset import Dataset
from tokenmill.store.exports import ExportManifest
from tokenmill.store.manifest import RUN_NAME, Run
from tokenmill.store.plan import Plan

# No license: the Hub takes a card without one, and any value, even `unknown`, says something.
_CARD = """\
---
# Add a license here, as in https://huggingface.co/docs/hub/repositories-licenses
tags:
- tokenmill
{config}---

# {title}

Packed rows of token ids, written by tokenmill {version}.

| | |
|---|---|
| rows | {rows} of {length} tokens, {order}{layout} |
| tokens | {tokens} without padding, in all {planned} rows of the plan |
| tokenizer | {tokenizer} |
| dataset | `{dataset_id}`, {documents} |
| plan | `{plan_id}`, {packing} |
| sources | {sources} |

Columns: {columns}; padding id {pad_id}.{left_out}

## Load

```python
{loading}
```

## Verify

With the dataset, tokenmill compares every token:

```
hf download {repo_id} --repo-type dataset --revision {branch} --local-dir rows
tokenmill verify rows --dataset corpus/
```

`export.json` lists the size and the XXH3-128 digest of each file.
"""
_CONFIG = """\
configs:
- config_name: default
  data_files:
  - split: {split}
    path: "*.{ending}"
"""
_LOAD_DATASET = """\
from datasets import load_dataset

rows = load_dataset({repo}, split="{split}")"""
_DOWNLOAD = """\
from huggingface_hub import snapshot_download

folder = snapshot_download({repo}, repo_type="dataset")
"""
_LOADING = {
    "parquet": _LOAD_DATASET,
    "datasets": _LOAD_DATASET,
    "npy": "import numpy\n" + _DOWNLOAD + 'rows = numpy.load(f"{{folder}}/{file}", mmap_mode="r")',
    "pt": "import torch\n"
    + _DOWNLOAD
    + 'rows = torch.load(f"{{folder}}/{file}", weights_only=True)',
    "mds": "from streaming import StreamingDataset\n"
    + _DOWNLOAD
    + "rows = StreamingDataset(local=folder, batch_size=1)",
}
"""By format."""
_ENDINGS = {"parquet": "parquet", "datasets": "arrow"}
"""Of the formats that `load_dataset` reads."""


def card_text(name: HubName, dataset: Dataset, plan: Plan, manifest: ExportManifest) -> str:
    """Return the card: YAML for the Hub, what the rows are, and how to load and verify them."""
    options, format_ = manifest.options, str(manifest.options.format)
    columns = [f"`{column}` {dtype}" for column, dtype in manifest.stored_dtypes.items()]
    if "labels" in manifest.dtypes:
        columns.append(f"labels {options.labels}")
    left_out = (manifest.left_out or {}).items()
    lengths = " or ".join(f"{length:,}" for length in plan.rows.row_lengths)
    revision = "" if name.revision == DEFAULT_REVISION else f', revision="{name.revision}"'
    values = {
        "repo_id": name.repo,
        "branch": name.revision,
        "repo": f'"{name.repo}"{revision}',
        "title": name.repo.partition("/")[2],
        "version": installed_version("tokenmill"),
        "split": plan.manifest.options.get("subset") or "train",
        "file": manifest.files[0].name if manifest.files else "",
        "ending": _ENDINGS.get(format_),
        "rows": f"{manifest.num_rows or manifest.num_sequences:,}",
        "length": f"up to {lengths}" if options.layout else lengths,
        "order": f"in the order of the {options.order}" if options.order else "shuffled",
        "layout": f", in the layout {options.layout}" if options.layout else "",
        "tokens": f"{int(np.sum(plan.lengths, dtype=np.int64)):,}",
        "planned": f"{len(plan):,}",
        "tokenizer": _tokenizer(dataset),
        "dataset_id": manifest.dataset_id,
        "documents": counted(dataset.num_documents, "document"),
        "plan_id": manifest.plan_id,
        "packing": plan.manifest.options["packing"],
        "sources": _sources(dataset),
        "columns": ", ".join(columns),
        "pad_id": manifest.pad_id,
        "left_out": "".join(f" Not stored: `{column}`, {rule}." for column, rule in left_out),
    }
    config = _CONFIG.format(**values) if format_ in _ENDINGS else ""
    return _CARD.format(**values, config=config, loading=_LOADING[format_].format(**values))


def _tokenizer(dataset: Dataset) -> str:
    """The digest of the tokenizer, and its name if it is from the Hub."""
    entry = dataset.manifest.tokenizer
    with contextlib.suppress(TokenmillError):
        run = read_sealed(dataset.roots[0].folder / RUN_NAME, Run)
        if run.tokenizer_commit:
            model = str(run.recipe["tokenizer"]).partition("@")[0]
            return f"`{model}@{run.tokenizer_commit}`, SHA-256 `{entry.sha256}`"
    return f"{entry.kind}, SHA-256 `{entry.sha256}`"


def _sources(dataset: Dataset) -> str:
    """The repositories on the Hub that the dataset was built from, and how many other files."""
    origins = [source.origin or "" for source in dataset.manifest.sources]
    names = [parse_hub_name(origin) for origin in origins if origin.startswith(PREFIX)]
    sources = list(dict.fromkeys(f"`{HubName(name.repo, name.revision)}`" for name in names))
    if others := len(origins) - len(names):
        sources.append(counted(others, "other file" if names else "file"))
    return ", ".join(sources)
