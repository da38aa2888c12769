"""tokenmill rows"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from tokenmill.cli.parser import Command, Json, Section
from tokenmill.core.options import about
from tokenmill.core.values import counted
from tokenmill.run.recipe.tokenizer_section import CausalLMConfig, check_section, load_section


class Rows(Command, kw_only=True):
    """Make rows, showing progress."""

    usage: ClassVar[str] = "--config FILE --dataset NAME_OR_PATH --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill rows --config tokenizer.yaml --dataset data.jsonl --out rows/
  tokenmill rows --config tokenizer.yaml --dataset OWNER/NAME --split train --out rows/
  tokenmill rows --tokenizer-name tokenizer.json --context-length 2048 --packing best-fit \\
      --dtype int32 --dataset data/ --out rows/"""
    common: ClassVar[tuple[str, ...]] = (
        *("config", "dataset", "out", "split", "tokenizer_name", "context_length", "packing"),
        *("columns", "dtype", "overwrite"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section("rows", CausalLMConfig, "override the options of the YAML file"),
    )

    config: Annotated[
        str | None,
        about("YAML file with a section `tokenizer`", metavar="FILE"),
    ] = None
    dataset: Annotated[
        str,
        about(
            "file, folder, folder written by save_to_disk, or name on the Hub",
            example="data.jsonl",
            metavar="NAME_OR_PATH",
        ),
    ]
    out: Annotated[
        str,
        about("folder for the rows", example="rows/", metavar="DIR"),
    ]
    subset: Annotated[str | None, about("configuration of a dataset on the Hub")] = None
    split: Annotated[str | None, about("a single split, e.g. train (default: all)")] = None
    revision: Annotated[str | None, about("revision of a dataset on the Hub")] = None
    overwrite: Annotated[bool, about("replace other rows in --out")] = False
    json: Json = False

    def run(self) -> None:
        from tokenmill.cli.tables import print_json
        from tokenmill.hf import CausalLMTokenizer
        from tokenmill.hf.source import load

        options = load_section(self.config) if self.config else {}
        config = check_section({**options, **self.given.get("rows", {})}, self.config or "")
        tokenizer = CausalLMTokenizer(config)
        dataset = load(self.dataset, subset=self.subset, split=self.split, revision=self.revision)
        result = tokenizer.tokenize(dataset, out=self.out, force=self.overwrite)
        splits = result if isinstance(result, dict) else {str(result.split or ""): result}
        summary = tokenizer.summary
        if self.json:
            print_json({"out": self.out, **_facts(splits), **summary.as_dict()})
            return
        print(f"{counted(summary.documents, 'document')} -> {counted(summary.rows, 'row')}")
        for name, rows in splits.items():
            features = ", ".join(
                f"{key} {each.feature.dtype}" for key, each in rows.features.items()
            )
            print(f"{name or self.out}: {counted(len(rows), 'row')} of {features}")
        print(f'open them with datasets.load_from_disk("{self.out}")')


def _facts(splits: dict[str, Any]) -> dict[str, Any]:
    first = next(iter(splits.values()))
    return {
        "splits": {name: len(rows) for name, rows in splits.items()},
        "columns": {key: kind.feature.dtype for key, kind in first.features.items()},
    }
