"""Train a tokenizer: count words, learn a model from the counts, write its files and check them.

    inputs      texts, which are counted first, or a folder of counts
    counts      unique words and how often each occurs, weighted by group
    model       merges, pieces or words, trained from the counts
    files       tokenizer.json or tokenizer.model, and their configuration
    check       the reference library loads the files and encodes the words as predicted

Every step depends only on the one before, so the same inputs give the same bytes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import InputChangedError, OutputConflictError, UserError
from tokenmill.core.records import Advance
from tokenmill.encode.split_file import find_split
from tokenmill.encode.words.splits import with_digits
from tokenmill.run.pipeline import count, counting_events
from tokenmill.run.recipe.checks import make_count_recipe
from tokenmill.store.counts.folder import (
    CountsFolder,
    is_counts_folder,
    open_counts,
    remove_counts,
    sampling_weights,
)
from tokenmill.vocabulary.training.bpe_models import learn_bpe
from tokenmill.vocabulary.training.checking import Measured, measure
from tokenmill.vocabulary.training.options import OF_SENTENCEPIECE, Model, TrainOptions
from tokenmill.vocabulary.training.output import (
    CountsEntry,
    Training,
    claimed,
    config_files,
    read_template,
    versions,
)
from tokenmill.vocabulary.training.sentencepiece_models import learn_sentencepiece, learn_unigram
from tokenmill.vocabulary.training.special_tokens import special_tokens, usual_roles
from tokenmill.vocabulary.training.training_input import TrainedModel, TrainingInput
from tokenmill.vocabulary.training.word_models import learn_whole_words, learn_word_pieces

LOGGER = logging.getLogger(__name__)
MODELS: dict[Model, Callable[[TrainingInput, Advance], TrainedModel]] = {
    "bpe": learn_bpe,
    "wordpiece": learn_word_pieces,
    "wordlevel": learn_whole_words,
    "unigram": learn_unigram,
    "sentencepiece-bpe": learn_sentencepiece,
    "sentencepiece-unigram": learn_sentencepiece,
}
LONG_CHARACTERS = 128
"""Longer tokens get a note."""
PARITY_WARNING = (
    "without parallel texts, --parity compares groups by bytes per token, and can leave them less "
    "equal than --alpha 0.3 does; add --parity-counts COUNTS, or --byte-premium GROUP=NUMBER"
)


@dataclass(frozen=True, slots=True)
class TrainReport:
    """The result of training a tokenizer."""

    folder: Path
    training: Training
    measured: list[Measured]
    """Figures of each vocabulary size, the largest first."""
    remarks: list[str] = field(default_factory=list)


def train(
    inputs: Sequence[str],
    out: str | Path,
    options: TrainOptions,
    *,
    counting: Mapping[str, Any] | None = None,
    counts_folder: str | Path | None = None,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> TrainReport:
    """Train a tokenizer on texts, or on one folder of counts.

    `counting` are the options of a `CountRecipe` for texts. Their counts are kept in
    `counts_folder`, if given, or else removed when the tokenizer is complete. A stopped run resumes
    its counting.

    Raises:
        OutputConflictError: the output folder has other content.
        UserError: options contradict each other, or the counts.
        TokenmillError: see `tokenmill.core.errors`.
    """
    template = read_template(options.special.chat_template)
    if counts_folder and Path(counts_folder).resolve().is_relative_to(Path(out).resolve()):
        why = "it is inside the folder of the tokenizer, which holds nothing else"
        raise UserError("the counts cannot be kept there", where=str(counts_folder), why=why)
    groups = options.groups
    if groups.parity and not (groups.parity_counts or groups.byte_premium):
        LOGGER.warning(PARITY_WARNING)
    with claimed(out, overwrite=overwrite) as output:
        place = output.counts if counts_folder is None else counts_folder
        try:
            counts = _counts(inputs, options, counting or {}, place, advance)
        except (InputChangedError, OutputConflictError):
            if not overwrite or counts_folder is not None:
                raise
            remove_counts(output.counts)  # those of a stopped run with other options
            counts = _counts(inputs, options, counting or {}, place, advance)
        given = _training_input(counts, options)
        trained = MODELS[options.vocabulary.model](given, advance)
        measured = [measure(each, given.words, advance) for each in trained.vocabularies]
        advance("writing", 0, 1)
        config = config_files(options.vocabulary.model, given.specials.roles, template)
        training = _training(given, trained, measured, counts)
        training = output.publish(_files(trained, config), training)
    remarks = [*trained.remarks, *_remarks(options, training)]
    return TrainReport(output.folder, training, measured, remarks)


def _counts(
    inputs: Sequence[str],
    options: TrainOptions,
    counting: Mapping[str, Any],
    place: str | Path,
    advance: Advance,
) -> CountsFolder:
    """Open the counts that the inputs name, or count the inputs into a folder."""
    if len(inputs) == 1 and is_counts_folder(inputs[0]):
        if counting:
            why = f"{', '.join(counting)} would change how texts are counted"
            raise UserError("the words are already counted", where=inputs[0], why=why)
        counts = open_counts(inputs[0])
        _require_split(counts, options)
        _require_groups(options, counts.manifest.by, inputs[0])
        return counts
    _require_groups(options, counting.get("by"), inputs[0])
    vocabulary = options.vocabulary
    # SentencePiece splits digits itself.
    digits = "keep" if vocabulary.model in OF_SENTENCEPIECE else vocabulary.digits
    values = {**counting, "split": options.split_name, "digits": digits}
    recipe = make_count_recipe({**values, "inputs": list(inputs), "out": str(place)})
    return count(recipe, events=counting_events(advance)).counts


def _require_split(counts: CountsFolder, options: TrainOptions) -> None:
    """Raise a UserError if the words were counted with other options."""
    vocabulary = options.vocabulary
    if vocabulary.split is None and vocabulary.digits == "keep":
        return
    if vocabulary.model in OF_SENTENCEPIECE:
        return  # checked when the model is trained
    name = vocabulary.split or counts.split.name
    wanted = with_digits(find_split(name) if name else counts.split, vocabulary.digits)
    if wanted.steps != counts.split.steps:
        raise UserError(
            "the words were counted with another split",
            where=str(counts.folder),
            why=f"with {counts.split.name or 'an unnamed one'}, not with {options.split_name}",
            hint="remove --split and --digits, or count again",
        )


def _require_groups(options: TrainOptions, by: str | None, where: str) -> None:
    """Raise a UserError if --alpha is to weigh groups, and there are none."""
    if options.groups.alpha is not None and not by:
        raise UserError(
            "--alpha has no groups to weigh",
            where=where,
            why="its words are not counted in groups",
            hint="add --by COLUMN, such as the language, or --by input",
        )


def _training_input(counts: CountsFolder, options: TrainOptions) -> TrainingInput:
    usual = usual_roles(options.vocabulary.model, counts.split.byte_level)
    specials = special_tokens(options.special, usual)
    weights = _weights(options, counts)
    words = counts.total(weights)
    if not len(words):
        why = "the counts are empty, or every group has the weight 0"
        raise UserError("there are no words to learn from", where=str(counts.folder), why=why)
    return TrainingInput(words, counts.groups, weights, counts.split, options, specials)


def _weights(options: TrainOptions, counts: CountsFolder) -> dict[str, int]:
    """Return the weight of each group."""
    if unknown := sorted(options.byte_premiums.keys() - counts.groups.keys()):
        why = f"the groups are {', '.join(map(repr, counts.groups))}"
        raise UserError(f"there is no group {unknown[0]!r}", where=str(counts.folder), why=why)
    alpha = options.groups.alpha
    if alpha is None:
        return {**dict.fromkeys(counts.groups, 1), **options.weights}
    sizes = {group.name: group.bytes for group in counts.manifest.groups}
    return sampling_weights(sizes, alpha, options.byte_premiums)


def _training(
    given: TrainingInput, trained: TrainedModel, measured: Sequence[Measured], counts: CountsFolder
) -> Training:
    is_sentencepiece = given.options.vocabulary.model in OF_SENTENCEPIECE
    libraries = ["sentencepiece"] if is_sentencepiece else []
    return Training(
        options=_told_options(given),
        split=given.split.steps,
        special_ids=dict(trained.vocabularies[0].special_ids),
        counts=CountsEntry(
            counts_id=counts.counts_id,
            weights=dict(given.weights),
            words=len(given.words),
            occurrences=given.words.num_occurrences,
            bytes=given.words.num_bytes,
            words_left_out=counts.left_out.words,
            bytes_left_out=counts.left_out.bytes,
        ),
        sizes=[found.entry for found in measured],
        curve=trained.curve,
        versions=versions("numba", "tokenizers", *libraries),
        files=[],
    )


def _told_options(given: TrainingInput) -> dict[str, Any]:
    """Return the options without paths of this machine."""
    options: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(given.options))
    options["special"]["chat_template"] = given.options.special.chat_template is not None
    options["groups"]["parity_counts"] = given.options.groups.parity_counts is not None
    options["vocabulary"]["split"] = given.split.name
    return options


def _files(trained: TrainedModel, config: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return all files by name; those of smaller vocabularies are in subfolders."""
    largest, *smaller = trained.vocabularies
    files = {**largest.files, **config}
    for vocabulary in smaller:
        for name, data in {**vocabulary.files, **config}.items():
            files[f"{vocabulary.size}/{name}"] = data
    return dict(sorted(files.items()))


def _remarks(options: TrainOptions, training: Training) -> Iterator[str]:
    largest = training.sizes[0]
    if largest.vocabulary < options.size:
        yield (
            f"the vocabulary has {largest.vocabulary:,} tokens instead of {options.size:,}, "
            "because the corpus does not give more"
        )
    longest = max((token.characters for token in largest.longest), default=0)
    if longest > LONG_CHARACTERS:
        yield (
            f"the longest token has {longest:,} characters, because the corpus repeats it; "
            "--max-token-length 64 excludes such tokens"
        )
