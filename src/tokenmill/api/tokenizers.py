"""Functions that train, extend, trim, compare and choose tokenizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack

from tokenmill.api.building import Inputs
from tokenmill.api.records import names_of
from tokenmill.core.records import Advance
from tokenmill.encode.encodings import RankEncoding
from tokenmill.vocabulary.training.options import counting_values, make_train_options

if TYPE_CHECKING:
    from tokenmill.api.options import ReportArguments, TrainArguments
    from tokenmill.packing.costs import ModelShape
    from tokenmill.reports.tokenizers.report import Report
    from tokenmill.vocabulary.advice.advise import VocabularyAdvice
    from tokenmill.vocabulary.changing.change import TokenizerChange
    from tokenmill.vocabulary.training.train import TrainReport


def train_tokenizer(
    inputs: Inputs,
    out: str | Path,
    *,
    counts: str | Path | None = None,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
    **options: Unpack[TrainArguments],
) -> TrainReport:
    """Train a tokenizer on texts or word counts, and check the result.

    The options of `tokenmill tokenizer train` are keyword arguments.

    Args:
        inputs: texts as for `build`, or one folder of word counts.
        out: folder for the tokenizer.
        counts: folder to keep the word counts in, so that you can train from them again.
        overwrite: replace a tokenizer that was trained before.
        advance: called with a stage, the amount done and the total, to show progress.
        options: the options of `tokenmill tokenizer train`, with underscores, for example
            `model`, `vocabulary` and `split`.

    Raises:
        UserError: an option or an input cannot be used.
        OutputConflictError: `out` holds something else.
        DataError: more records are bad than `max_bad` allows.
    """
    from tokenmill.vocabulary.training.train import train

    training, counting = counting_values(options)
    return train(
        names_of(inputs),
        out,
        make_train_options(training),
        counting=counting,
        counts_folder=counts,
        overwrite=overwrite,
        advance=advance,
    )


def extend_tokenizer(
    base: str | Path | object,
    on: Inputs,
    out: str | Path,
    *,
    add: int,
    min_frequency: int = 2,
    encoding: str | RankEncoding = "",
    advance: Advance = lambda stage, done, total: None,
) -> TokenizerChange:
    """Add tokens to a BPE tokenizer, learned from texts or word counts.

    Existing ids and merges do not change. `out` gets a tokenizer.json and an embedding plan,
    which `tokenmill.hf.resize_embeddings` applies to a model.

    Args:
        base: the tokenizer to extend, as for `build`, or a dataset.
        on: texts as for `build`, or one folder of word counts.
        out: folder for the new tokenizer.
        add: the most tokens to add.
        min_frequency: occurrences that a pair needs to become a token.
        encoding: encoding of a tiktoken rank file, if the ranks do not identify it.
        advance: as for `train_tokenizer`.

    Raises:
        UserError: `base` is not a BPE tokenizer, or the counts use another split than `base`.
        OutputConflictError: `out` already exists.
    """
    from tokenmill.reports.tokenizers.subject import open_tokenizer
    from tokenmill.vocabulary.changing.change import change_file

    options = {"add": add, "min_frequency": min_frequency}
    return change_file(open_tokenizer(base, encoding), names_of(on), out, options, advance)


def trim_tokenizer(
    base: str | Path | object,
    on: Inputs,
    out: str | Path,
    *,
    to: int,
    encoding: str | RankEncoding = "",
    advance: Advance = lambda stage, done, total: None,
) -> TokenizerChange:
    """Remove the tokens of a BPE tokenizer that a corpus needs least.

    Every remaining token can still be produced. `out` gets a tokenizer.json, a table from old to
    new ids, and an embedding plan, which `tokenmill.hf.resize_embeddings` applies to a model.

    Args:
        base: the tokenizer to trim, as for `build`, or a dataset.
        on: texts as for `build`, or one folder of word counts.
        out: folder for the new tokenizer.
        to: number of tokens to keep.
        encoding: encoding of a tiktoken rank file, if the ranks do not identify it.
        advance: as for `train_tokenizer`.

    Raises:
        UserError: `base` is not a BPE tokenizer, the counts use another split than `base`, or
            more than `to` tokens are required.
        OutputConflictError: `out` already exists.
    """
    from tokenmill.reports.tokenizers.subject import open_tokenizer
    from tokenmill.vocabulary.changing.change import change_file

    return change_file(open_tokenizer(base, encoding), names_of(on), out, {"to": to}, advance)


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
    """Recommend a vocabulary size for a model, from scaling laws and optionally from a corpus.

    Give `model`, `parameters` or `compute`; you can combine `compute` with either of the other
    two. The scaling laws are those of arXiv 2407.13623.

    Args:
        model: name of a published model, or a `tokenmill.packing.costs.ModelShape`.
        parameters: parameters of the model without embedding and output matrix.
        compute: FLOPs of the training.
        hidden_size: hidden size of the model, if only `parameters` or `compute` is given.
        tied: whether input and output embeddings share one matrix.
        on: folder of word counts. If given, the token count of that corpus is measured at every
            vocabulary size.
        weights: how often to count each group of the word counts.
        sizes: further vocabulary sizes to report.
        sequence_length: sequence length for the FLOPs of attention.
        multiple: round the recommendation up to a multiple of this.
        advance: called with a stage, the amount done and the total, to show progress.

    Raises:
        UserError: the arguments do not determine a model, or the counts do not exist.
        VerificationError: the counts are damaged.
    """
    from tokenmill.vocabulary.advice.advise import advise, largest_size_of_interest, target_model

    target = target_model(
        model=model, parameters=parameters, compute=compute, hidden_size=hidden_size, tied=tied
    )
    corpus = None
    if on is not None:
        from tokenmill.vocabulary.advice.lengths import lengths_of_counts

        corpus = lengths_of_counts(on, weights, largest_size_of_interest(target, sizes), advance)
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
    """Measure one or several tokenizers on the same text. Writes nothing.

    Args:
        tokenizers: one or several tokenizers, as for `build`, or datasets, for the tokenizers
            they were built with.
        on: inputs as for `build`; a dataset, for its sources; or a folder of word counts.
        by: field to group documents by, or "input" for the input they come from.
        base: for parallel text: the group to compare the others with. The report then contains
            premiums and the Gini coefficient. Documents with the same id are resampled together.
        words: the rule that splits text into words.
        sequence_lengths: row lengths in tokens to report.
        model: name of a published model, to report FLOPs.
        encoding: encoding of a tiktoken rank file, if the ranks do not identify it.
        workers: number of worker processes. By default, one for small inputs.
        advance: called with a stage, the amount done and the total, to show progress.
        read: how to read the inputs: `format`, `text_field`, `id_field`, `separator` and
            `streaming`, as for `build`.

    Raises:
        UserError: an option is wrong, or a tokenizer or an input cannot be found.
        DataError: an input is damaged.
        EngineError: a text cannot be encoded exactly.
    """
    from tokenmill.core.options import make_options
    from tokenmill.packing.costs import named_shape
    from tokenmill.reports.tokenizers.report import Comparison, report_on_inputs
    from tokenmill.reports.tokenizers.subject import open_subjects
    from tokenmill.run.recipe.options import ReadOptions, ResourceOptions

    asked = Comparison(
        words=words,
        sequence_lengths=tuple(sequence_lengths),
        base=base,
        model=named_shape(model) if model is not None else None,
        resources=ResourceOptions(workers=workers),
    )
    subjects = open_subjects(tokenizers, encoding)
    reading = make_options(ReadOptions, read, "the report")
    return report_on_inputs(subjects, names_of(on), reading, by, asked, advance)
