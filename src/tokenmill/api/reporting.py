"""`tokenmill.report`: one page about a dataset, a plan, a state, an analysis or tokenizers."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.api.datasets import Dataset
from tokenmill.core.errors import OutputConflictError, UserError
from tokenmill.core.html import Html
from tokenmill.core.paths import local_path, output_path, read_bounded
from tokenmill.core.records import Advance
from tokenmill.load.steps.state import LoaderState, decoded
from tokenmill.reports.lengths.analysis import Analysis
from tokenmill.reports.overview import Overview, overview, plan_of_state
from tokenmill.reports.page.dataset import dataset_page
from tokenmill.reports.page.document import GENERATOR, whole_page
from tokenmill.reports.page.lengths import analysis_page
from tokenmill.reports.page.tokenizers import tokenizers_page
from tokenmill.reports.tokenizers.report import Report
from tokenmill.store.cloud.names import is_remote
from tokenmill.store.dataset import PLAN_NAME
from tokenmill.store.files import storage_errors, write_atomically
from tokenmill.store.plan import open_plan
from tokenmill.store.temporary import dataset_at

Subject = Dataset | Analysis | Report | Mapping[str, Any] | str | Path
MOST_JSON_BYTES = 256 << 20


def report(
    subject: Subject,
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
    known = _resolved(subject)
    found = (
        known
        if isinstance(known, (Analysis, Report))
        else _overview(known, dataset, plan, tokenizer, advance)
    )
    if place is not None:
        page = whole_page(*_page(found))
        with storage_errors("write the page", place):
            write_atomically(place, page.encode())
    return found


def _resolved(subject: Subject) -> Analysis | Report | LoaderState | Dataset | str | Path:
    """What a subject is: figures, a state, or a dataset or its place."""
    if isinstance(subject, Mapping):
        return decoded(dict(subject), LoaderState, "a loader")
    if isinstance(subject, (str, Path)) and not is_remote(subject):
        path = local_path(subject, "the subject of the report")
        return _in_file(path) if path.is_file() else path
    return subject


def _in_file(path: Path) -> Analysis | Report | LoaderState:
    """The figures or the state in a JSON file."""
    data = read_bounded(path, MOST_JSON_BYTES, "the file")
    problems = []
    for kind, name in _KINDS.items():
        try:
            found: Analysis | Report | LoaderState = msgspec.json.decode(data, type=kind)
            if not isinstance(found, LoaderState):
                _page(found)
            return found
        except (msgspec.MsgspecError, RecursionError) as error:
            problems.append(f"{name}: {error}")
        except (LookupError, ArithmeticError, ValueError) as error:
            problems.append(f"{name}: its figures contradict each other ({error!r})")
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


def _overview(
    subject: LoaderState | Dataset | str | Path,
    dataset: Dataset | str | Path | None,
    plan: str | Path | None,
    tokenizer: object,
    advance: Advance,
) -> Overview:
    """The figures of a dataset, or of that of a plan or a state."""
    state = None
    if isinstance(subject, LoaderState):
        state, subject = subject, _given(dataset, subject)
    elif isinstance(subject, Path) and (subject / PLAN_NAME).is_file():
        plan, subject = subject, dataset or subject.absolute().parent.parent
    with nullcontext(subject) if isinstance(subject, Dataset) else dataset_at(subject) as opened:
        chosen = None if plan is None else open_plan(opened, plan)
        chosen = chosen if state is None else plan_of_state(opened, state)
        return overview(opened, chosen, state, tokenizer, advance)


def _given(dataset: Dataset | str | Path | None, state: LoaderState) -> Dataset | str | Path:
    if dataset is None:
        raise UserError(
            "the state of a loader needs its dataset",
            why=f"it stands at step {state.step:,}, and names its data only by id",
            hint="give the dataset: dataset=..., or --dataset DIR",
        )
    return dataset


def _page(found: Overview | Analysis | Report) -> tuple[str, list[Html]]:
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
