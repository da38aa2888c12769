"""Suggestions for misspelled names, and for names that other tools use."""

from __future__ import annotations

from collections.abc import Iterable

WORDS = {
    "sequence_length": "seq_len seq_length max_length max_len max_seq_len max_seq_length "
    "max_sequence_length block_size context_length context_len context_size ctx_len length",
    "workers": "num_workers num_proc num_procs nproc jobs num_jobs threads num_threads processes "
    "num_processes",
    "out": "output output_dir output_folder output_path output_prefix out_dir save_dir save_path "
    "destination",
    "text_field": "text_key text_column json_key json_keys content_field column_name field",
    "tokenizer": "tokenizer_name tokenizer_path tokenizer_file tokenizer_model "
    "tokenizer_name_or_path tokenizer_type model model_name",
    "encoding": "encoding_name",
    "vocabulary": "vocab vocab_size vocabulary_size size",
    "special": "special_tokens user_defined_symbols control_symbols",
    "eos": "eod eos_token eos_id end_of_text",
    "pad": "pad_token pad_id pad_token_id",
    "keep": "keep_fields keep_columns columns metadata",
    "separator": "delimiter document_separator",
    "validation": "val val_split valid validation_split valid_split val_fraction test_size",
    "max_documents": "limit max_docs num_docs num_documents max_samples num_samples",
    "memory": "mem max_memory memory_limit ram",
    "max_bad": "max_errors max_bad_records",
    "packing": "strategy algorithm packing_strategy pack_strategy",
    "long_documents": "overflow truncation truncate long_document_policy",
    "max_segments": "max_docs_per_sequence max_documents_per_sequence",
    "ranks": "world_size dp_size data_parallel_size",
    "overwrite": "force clobber replace",
    "config": "config_file recipe",
    "global_batch_size": "total_batch_size",
    "batch_size": "micro_batch_size per_device_train_batch_size",
    "columns": "fields",
    "max_sequences": "max_rows num_rows",
    "build": "tokenize encode preprocess prepare create run",
    "pack": "plan chunk",
    "export": "convert write save",
    "verify": "validate check audit",
    "inspect": "show view info stats describe peek head",
    "bench": "benchmark profile",
}
"""Names in tokenmill, and the names that other tools use for the same thing."""

ADVICE = {
    "input_dir": "inputs are positional: tokenmill build INPUT ...",
    "input": "inputs are positional: tokenmill build INPUT ...",
    "dataset": "a dataset on the Hub is an input: tokenmill build hf://fineweb-edu ...",
    "dataset_name": "a dataset on the Hub is an input: "
    "tokenmill build hf://datasets/OWNER/NAME ...",
    "batch_size": "tokenmill build chooses the batch size itself, within --memory",
    "chunk_size": "set the length of sequences with --sequence-length of tokenmill build or pack",
    "sequences_per_chunk": "set the rows of each file with tokenmill export --sequences-per-file",
    "stride": "windows overlap with tokenmill pack --long-documents sliding-window --overlap N",
    "append_eod": "every document ends with a token, which --eos can name",
    "append_eos": "every document ends with a token, which --eos can name",
    "resume": "run the same command again to resume",
    "max_chunks": "limit the sequences that are written with tokenmill export --max-sequences, or "
    "the documents that are read with tokenmill build --max-documents",
}
"""What to use instead of a flag of other scripts, if tokenmill has no equivalent flag."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the known name that is most likely meant by `name`, or "".

    It differs in at most two letters (one in names of three), or is in `WORDS`. Hyphens,
    underscores and capitals do not matter. A unique prefix is enough.
    """
    spelled = {_plain(each): each for each in known}
    wanted = _plain(name)
    for ours, theirs in WORDS.items():
        if wanted in theirs.split() and ours in spelled:
            return spelled[ours]
    close = [each for each in spelled if wanted and each.startswith(wanted)]
    if len(close) == 1:
        return spelled[close[0]]
    distance, best = min(((_distance(wanted, each), each) for each in spelled), default=(9, ""))
    return spelled[best] if distance <= (2 if len(wanted) > 3 else 1) else ""


def _distance(a: str, b: str) -> int:
    """Return how many letters must be inserted, removed or changed to turn `a` into `b`."""
    row = list(range(len(b) + 1))
    for number, letter in enumerate(a, 1):
        above, row = row, [number]
        for column, other in enumerate(b):
            row.append(min(above[column] + (letter != other), above[column + 1] + 1, row[-1] + 1))
    return row[-1]


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return a hint that asks about the nearest known name; `otherwise` if none is near."""
    close = nearest(name, known)
    return f"did you mean {close}?" if close else otherwise


def advice_for(name: str, known: Iterable[str]) -> str:
    """Return what to use instead of a flag of another script; "" if `known` contains the name."""
    is_ours = _plain(name) in map(_plain, known)
    return "" if is_ours else ADVICE.get(_plain(name), "")


def _plain(name: str) -> str:
    return name.strip("-").replace("-", "_").lower()
