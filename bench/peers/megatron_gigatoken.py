"""Peer: the steps of Megatron-LM's `preprocess_data_fast.py` with the published packages.

Megatron's fast script hands the whole input to gigatoken's own reader, keeps all ids of the corpus
in memory, inserts the end-of-document token into the flat array, writes it in one piece and keeps
the lengths as Python lists for the index. The script is not in the `megatron-core` wheel, so its
steps are written out here on top of the wheel's `IndexedDatasetBuilder`, which pulls in torch.

Two things favour the peer: it may read several input files (the original takes one path), and the
tokenizer is loaded by gigatoken directly, without importing `transformers` first.

    python megatron_gigatoken.py --tokenizer tokenizer.json --out-prefix DIR/name a.jsonl b.jsonl
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path


def vocabulary_size(tokenizer: dict) -> int:
    """Ids of the model and of the added tokens, as Megatron counts them."""
    added = [token["id"] for token in tokenizer["added_tokens"]]
    return max([*tokenizer["model"]["vocab"].values(), *added]) + 1


def end_of_document(tokenizer: dict, token: str) -> int:
    ids = [entry["id"] for entry in tokenizer["added_tokens"] if entry["content"] == token]
    return ids[0] if ids else tokenizer["model"]["vocab"][token]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("inputs", nargs="+", help="plain .jsonl or .jsonl.zst files")
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--out-prefix", required=True)
    parser.add_argument("--field", default="text")
    parser.add_argument("--eod", default="<|endoftext|>")
    options = parser.parse_args()

    started = time.perf_counter()
    # Imported here so that the script can print what its start-up costs.
    import gigatoken
    import numpy as np
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    print(f"start-up {time.perf_counter() - started:.2f} s")

    text = Path(options.tokenizer).read_text("utf-8")
    description = json.loads(text)
    tokenizer = gigatoken.Tokenizer.from_json(text)
    source = gigatoken.JsonlFileSource(options.inputs, field=options.field)
    layout = tokenizer.encode_files(source, parallel=True).layout
    offsets = np.asarray(layout.offsets.data)
    print(f"encoded  {time.perf_counter() - started:.2f} s")

    Path(options.out_prefix).parent.mkdir(parents=True, exist_ok=True)
    builder = IndexedDatasetBuilder(
        f"{options.out_prefix}_{options.field}_document.bin",
        dtype=DType.optimal_dtype(vocabulary_size(description)),
    )
    ids = np.insert(
        np.asarray(layout.content.data), offsets[1:], end_of_document(description, options.eod)
    )
    builder.data_file.write(ids.astype(builder.dtype).tobytes(order="C"))
    builder.sequence_lengths.extend((np.diff(offsets) + 1).tolist())
    builder.document_indices.extend(range(1, len(offsets)))
    builder.finalize(f"{options.out_prefix}_{options.field}_document.idx")
    print(f"written  {time.perf_counter() - started:.2f} s")
    print(f"documents {len(offsets) - 1} tokens {len(ids)}")


if __name__ == "__main__":
    main()
