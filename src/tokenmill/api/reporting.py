"""`tokenmill.report`: one page about a dataset, a plan, a state, an analysis or tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.api.datasets import Dataset
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.html import Html
from tokenmill.core.paths import local_path, output_path, read_bounded
from tokenmill.core.records import Advance
from tokenmill.load.state import LoaderState, decoded
from tokenmill.reports.lengths.analysis import Analysis
from tokenmill.reports.overview import Focus, Overview, overview, plan_of_state
from tokenmill.reports.page.dataset import dataset_page
from tokenmill.reports.page.document import GENERATOR, whole_page
from tokenmill.reports.page.lengths import analysis_page
from tokenmill.reports.page.tokenizers import tokenizers_page
from tokenmill.reports.tokenizers.report import Report
from tokenmill.store import dataset as store
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.dataset import PLAN_NAME
from tokenmill.store.files import storage_errors, write_atomically
from tokenmill.store.plan import open_plan
from tokenmill.store.temporary import dataset_at

Figures = Overview | Analysis | Report
MOST_JSON_BYTES = 256 << 20


def report(
    subject: Dataset | Analysis | Report | Mapping[str, Any] | str | Path,
    out: str | Path | None = None,
    *,
    dataset: Dataset | str | Path | None = None,
    plan: str | Path | None = None,
    tokenizer: object = None,
    advance: Advance = lambda stage, done, total: None,
) -> Overview | Analysis | Report:
    """Return the figures of a subject, and write them as one self-contained page.

    The page loads nothing, and can be sent by mail or opened from a disk. Of a large dataset, some
    figures come from an even sample; the page says which.

    Args:
        subject: a dataset or its place; the folder of a plan; what `analyze` or
            `report_tokenizers` returned; the state of a loader; or a JSON file with one of the
            last three, as `--json` prints it.
        out: file for the page, or None. A page that was made before is replaced.
        dataset: for a state, or a plan outside its dataset: the dataset it belongs to.
        plan: for a dataset with several plans: that of the batch to show.
        tokenizer: the tokenizer object or `python:MODULE:NAME`, if the dataset was built with a
            tokenizer written in Python.
        advance: called with a stage, the amount done and the total, to show progress.

    Raises:
        UserError: the subject does not exist, is none of these, or lacks its dataset.
        VerificationError: the dataset is damaged.
        OutputConflictError: `out` is something else than such a page.
        StorageError: the page cannot be written.
    """
    place = None if out is None else _checked_out(out)
    found = _figures(subject, dataset, _Asked(plan, tokenizer, advance))
    if place is not None:
        page = whole_page(*_page(found))
        with storage_errors("write the page", place):
            write_atomically(place, page.encode())
    return found


class _Asked(msgspec.Struct, frozen=True):
    plan: str | Path | None
    tokenizer: object
    advance: Advance


def _figures(subject: object, dataset: Dataset | str | Path | None, asked: _Asked) -> Figures:
    if isinstance(subject, (Analysis, Report)):
        return subject
    if isinstance(subject, Mapping):
        return _of_state(decoded(dict(subject), LoaderState, "a loader"), dataset, asked)
    if isinstance(subject, Dataset):
        return _of_dataset(subject, asked)
    assert isinstance(subject, (str, Path))
    if is_remote(subject):
        with dataset_at(subject) as found:
            return _of_dataset(found, asked)
    path = local_path(subject, "the subject of the report")
    if path.is_file():
        return _of_file(path, dataset, asked)
    if (path / PLAN_NAME).is_file():
        with _opened(dataset or path.absolute().parent.parent) as found:
            return _of_dataset(found, msgspec.structs.replace(asked, plan=path))
    with dataset_at(path) as found:
        return _of_dataset(found, asked)


def _opened(
    dataset: Dataset | str | Path,
) -> AbstractContextManager[store.Dataset]:
    return nullcontext(dataset) if isinstance(dataset, Dataset) else dataset_at(dataset)


def _of_dataset(dataset: Dataset | store.Dataset, asked: _Asked) -> Overview:
    plan = None if asked.plan is None else open_plan(dataset, asked.plan)
    return overview(dataset, Focus(plan, None, asked.tokenizer), asked.advance)


def _of_state(state: LoaderState, dataset: Dataset | str | Path | None, asked: _Asked) -> Overview:
    """The dataset of a state, with its plan and its next batch."""
    if dataset is None:
        raise UserError(
            "the state of a loader needs its dataset",
            why=f"it stands at step {state.step:,}, and names its data only by their ids",
            hint="give the dataset: dataset=..., or --dataset DIR",
        )
    with _opened(dataset) as found:
        plan = plan_of_state(found, state)
        return overview(found, Focus(plan, state, asked.tokenizer), asked.advance)


def _of_file(path: Path, dataset: Dataset | str | Path | None, asked: _Asked) -> Figures:
    """The figures in a JSON file: of an analysis, of tokenizers, or those of a state."""
    data = read_bounded(path, MOST_JSON_BYTES, "the figures")
    problems = []
    for kind, name in _KINDS.items():
        try:
            found: Analysis | Report | LoaderState = msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            problems.append(f"{name}: {error}")
            continue
        return _of_state(found, dataset, asked) if isinstance(found, LoaderState) else found
    raise UserError(
        "cannot make a report of this file",
        where=str(path),
        why="it is none of these:\n       " + "\n       ".join(problems),
        hint="give a dataset, a plan, or a file that analyze --json, tokenizer report --json or "
        "a loader's state_dict wrote",
    )


_KINDS: dict[type[Any], str] = {
    Analysis: "an analysis",
    Report: "a report on tokenizers",
    LoaderState: "the state of a loader",
}
"""What a JSON file may hold."""


def _page(found: Figures) -> tuple[str, list[Html]]:
    """The title and the parts of the page."""
    if isinstance(found, Overview):
        return f"{found.location}: a dataset", dataset_page(found)
    if isinstance(found, Analysis):
        return f"{found.corpus}: lengths of documents", analysis_page(found)
    return "Tokenizers on the same text", tokenizers_page(found)


def _checked_out(out: str | Path) -> Path:
    """The file to write: a new one, or a page that was made before."""
    place = output_path(out, "the page")
    if place.exists() and not _is_page(place):
        raise OutputConflictError(
            "the file of the page already exists",
            where=str(place),
            why="it is no page of tokenmill",
            hint="give another name with --out",
        )
    return place


def _is_page(place: Path) -> bool:
    if not place.is_file():
        return False
    with place.open("rb") as file:
        return GENERATOR in file.read(4096)
