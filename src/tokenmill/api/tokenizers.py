"""Tokenizers from Python: trained with flat options, or made of another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from tokenmill.api.building import Inputs
from tokenmill.encode.encodings import RankEncoding
from tokenmill.records import Advance
from tokenmill.vocabulary.training.options import counting_values, make_train_options

if TYPE_CHECKING:
    from tokenmill.api.options import ReportArguments, TrainArguments
    from tokenmill.costs import ModelShape
    from tokenmill.report.tokenizers.report import Report
    from tokenmill.vocabulary.advice.advise import VocabularyAdvice
    from tokenmill.vocabulary.changing.change import TokenizerChange
    from tokenmill.vocabulary.training.train import TrainReport


def train_tokenizer(
    inputs: Inputs,
    out: str | Path,
    *,
    counts: str | Path | None = None,
    overwrite: bool = False,
    **options: Unpack[TrainArguments],
) -> TrainReport:
    """Train a tokenizer on texts, or on a folder of counts, and check it.

    Options are those of `tokenmill tokenizer train`, with underscores. The counts of texts stay in
    the folder `counts`, if one is given.

    Raises:
        TokenmillError: see `tokenmill.errors`.
    """
    from tokenmill.vocabulary.training.train import train

    training, counting = counting_values(options)
    return train(
        _names(inputs),
        out,
        make_train_options(training),
        counting=counting,
        counts_folder=counts,
        overwrite=overwrite,
    )


def extend_tokenizer(
    base: str | Path | object,
    on: Inputs,
    out: str | Path,
    *,
    add: int,
    min_frequency: int = 2,
    encoding: str | RankEncoding = "",
) -> TokenizerChange:
    """Add up to `add` tokens to a BPE tokenizer, learnt on texts or on a folder of word counts.

    Old ids and merges stay as they are. `out` gets a tokenizer.json, and a plan for the rows of a
    model: see `tokenmill.hf.resize_embeddings`.

    Raises:
        UserError: `base` is no BPE, or the words were cut in another way than it cuts.
        OutputConflictError: something has the name `out` already.
    """
    from tokenmill.report.tokenizers.source import open_tokenizer
    from tokenmill.vocabulary.changing.change import extend_file

    file = open_tokenizer(base, encoding)
    return extend_file(file, _names(on), out, add=add, min_frequency=min_frequency)


def trim_tokenizer(
    base: str | Path | object,
    on: Inputs,
    out: str | Path,
    *,
    to: int,
    encoding: str | RankEncoding = "",
) -> TokenizerChange:
    """Remove the tokens of a BPE tokenizer that texts, or word counts, need least; `to` are left.

    Every token that is kept can still be reached. `out` gets a tokenizer.json, the new id of each
    old one, and a plan for the rows of a model: see `tokenmill.hf.resize_embeddings`.

    Raises:
        UserError: `base` is no BPE, the words were cut in another way than it cuts, or more tokens
            than `to` have to stay.
        OutputConflictError: something has the name `out` already.
    """
    from tokenmill.report.tokenizers.source import open_tokenizer
    from tokenmill.vocabulary.changing.change import trim_file

    return trim_file(open_tokenizer(base, encoding), _names(on), out, to=to)


def advise_vocabulary(
    *,
    model: str | ModelShape | None = None,
    parameters: float | None = None,
    compute: float | None = None,
    hidden_size: int | None = None,
    tied: bool | None = None,
    on: str | Path | None = None,
    weights: Mapping[str, int] | None = None,
    sizes: Sequence[int] = (),
    sequence_length: int = 4096,
    multiple: int = 128,
    advance: Advance | None = None,
) -> VocabularyAdvice:
    """Recommend the size of a vocabulary for a model, by scaling laws and by a corpus.

    The model is given by its name or shape (`tokenmill.costs`), by its parameters without the
    vocabulary, or by the FLOPs of its training; `compute` may be given beside the other two. With
    word counts in the folder `on`, the lengths of that corpus at every size are measured: a BPE is
    learnt once. See arXiv 2407.13623 for the laws.

    Raises:
        UserError: the model is not known from what was given, or there are no counts.
        VerificationError: the counts are damaged.
    """
    from tokenmill.vocabulary.advice.advise import advise, largest_size_of_interest
    from tokenmill.vocabulary.advice.target import target_model

    target = target_model(
        model=model, parameters=parameters, compute=compute, hidden_size=hidden_size, tied=tied
    )
    corpus = None
    if on is not None:
        import dataclasses

        from tokenmill.store.counts.folder import open_counts
        from tokenmill.vocabulary.advice.lengths import measure_lengths

        counts = open_counts(on)
        corpus = measure_lengths(
            counts.total(weights),
            byte_level=counts.split.byte_level,
            largest_size=largest_size_of_interest(target, sizes),
            advance=advance,
        )
        corpus = dataclasses.replace(corpus, left_out_bytes=counts.left_out.bytes)
    return advise(target, corpus, sizes=sizes, sequence_length=sequence_length, multiple=multiple)


def report_tokenizers(
    tokenizers: str | Path | object | Sequence[str | Path | object],
    on: str | Path | Sequence[str | Path],
    *,
    by: str | None = None,
    base: str | None = None,
    words: Literal["uax29", "whitespace", "characters"] = "uax29",
    sequence_lengths: Sequence[int] = (2048, 8192),
    model: str | None = None,
    encoding: str | RankEncoding = "",
    workers: int | None = None,
    advance: Advance = lambda stage, done, total: None,
    **read: Unpack[ReportArguments],
) -> Report:
    """Measure one or several tokenizers on the same text; writes nothing.

    A tokenizer is what `build` takes, or a dataset, for the one that it carries. `on` is a dataset,
    for the sources that it was built from, inputs as for `build`, or a folder of word counts.
    Documents are grouped `by` a column, or by "input". With a `base` group, whose documents are
    the same texts as those of each other group, premiums and Gini coefficient are told; documents
    with one id are then drawn together for the intervals.
    `model` names a published shape, as in `tokenmill tokenizer advise`.

    Raises:
        UserError: an option is wrong, or a tokenizer or an input cannot be found.
        DataError: an input is damaged.
        EngineError: a text cannot be encoded exactly.
    """
    from tokenmill.costs import named_shape
    from tokenmill.report.tokenizers.corpus import is_counts, open_corpus
    from tokenmill.report.tokenizers.report import Comparison, report_on, report_on_counts
    from tokenmill.report.tokenizers.subject import open_subjects
    from tokenmill.run.recipe.options import ReadOptions, ResourceOptions
    from tokenmill.store.counts.folder import open_counts

    asked = Comparison(
        words=words,
        sequence_lengths=tuple(sequence_lengths),
        base=base,
        model=named_shape(model) if model is not None else None,
        resources=ResourceOptions(workers=workers),
    )
    names: list[str | Path | object] = []
    if isinstance(tokenizers, Sequence) and not isinstance(tokenizers, str):
        names += tokenizers
    else:
        names.append(tokenizers)
    subjects = open_subjects(names, encoding)
    inputs = [str(name) for name in ([on] if isinstance(on, (str, Path)) else on)]
    if is_counts(inputs):
        return report_on_counts(subjects, open_counts(inputs[0]), by, asked, advance)
    corpus = open_corpus(inputs, ReadOptions(**read), by, advance)
    return report_on(subjects, corpus, asked, advance)


def _names(inputs: Inputs) -> list[str]:
    names = [inputs] if isinstance(inputs, (str, Path)) else list(inputs)
    return [str(name) for name in names]
