"""A packing plan on disk: flat arrays that list the segments of each sequence.

    plan.json       written last, with its own digest; names the dataset and the arrays
    offsets.npy     int64, (num_sequences + 1,): sequence i is segments [offsets[i], offsets[i + 1])
    documents.npy   uint32, (num_segments,): the document of each segment, numbered over all shards
    starts.npy      uint32, (num_segments,): its first token, relative to the document
    lengths.npy     uint32, (num_segments,): its number of tokens

`documents.npy` is uint64 for datasets with 2^32 documents or more. A plan is read together with its
dataset and never changes it. It can be in `plans/` of the dataset or anywhere else.
"""

from __future__ import annotations

import re
import shlex
import shutil
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
import xxhash

from tokenmill.core import pictures
from tokenmill.core.charts import Library, histogram
from tokenmill.core.errors import OutputConflictError, UserError, VerificationError
from tokenmill.core.html import card
from tokenmill.core.paths import is_safe_path, local_path
from tokenmill.core.records import Int64Array, Sequences
from tokenmill.core.suggestions import nearest
from tokenmill.core.values import counted
from tokenmill.encode.boundaries import offsets_from_lengths
from tokenmill.store.arrays import ArrayFile, open_listed
from tokenmill.store.canonical import canonical_json, read_sealed, write_sealed
from tokenmill.store.dataset import PLAN_NAME, Dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.files import (
    held_beside,
    remove_folder,
    storage_errors,
    take_name,
)
from tokenmill.store.manifest import Count, FileEntry
from tokenmill.store.ownership import UNFINISHED_PLAN, refuse_strangers
from tokenmill.store.row_format import RowFormat

if TYPE_CHECKING:
    from tokenmill.store.remote.origin import Origin

PLAN_FORMAT = "tokenmill-plan"
PLAN_VERSION = 2
ARRAYS = ("offsets", "documents", "starts", "lengths")
MAX_NAME_BYTES = 200
"""Of a plan's name. File systems allow 255, and temporary names are longer."""
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)
_FILES = {PLAN_NAME, *(f"{name}.npy" for name in ARRAYS)}


class WindowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Shards that were packed together; no sequence mixes documents of two windows."""

    shards: Count
    sequences: Count


class PlanManifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of plan.json."""

    format: str = PLAN_FORMAT
    format_version: int = PLAN_VERSION
    plan_id: str
    """Digest of the dataset id, the options and the arrays, in 32 hexadecimal digits."""
    dataset_id: str
    options: dict[str, Any]
    figures: dict[str, Any]
    rows: RowFormat
    """How sequences become rows; not part of the id."""
    num_sequences: Count
    num_segments: Count
    windows: list[WindowEntry]
    files: list[FileEntry]
    digest: str = ""


class PlanWriter:
    """Writes a plan window by window, under a temporary name until it is complete."""

    def __init__(self, folder: Path, num_documents: int) -> None:
        self.folder = folder
        wide = num_documents >= 2**32
        self._dtypes = {"offsets": "<i8", "documents": "<u8" if wide else "<u4"}
        self._files: dict[str, ArrayFile] = {}
        self._windows: list[WindowEntry] = []

    def __enter__(self) -> PlanWriter:
        with ExitStack() as stack, storage_errors("write the plan", self.folder):
            work = stack.enter_context(
                held_beside(self.folder, PLAN_NAME, UNFINISHED_PLAN.fullmatch)
            )
            stack.callback(shutil.rmtree, work, ignore_errors=True)
            self._temporary = work / "new"
            remove_folder(self._temporary)  # left by a killed run
            self._temporary.mkdir()
            for name in ARRAYS:
                path = self._temporary / f"{name}.npy"
                self._files[name] = ArrayFile(path, self._dtypes.get(name, "<u4"))
                stack.callback(self._files[name].close)
            self._files["offsets"].append(np.zeros(1, np.int64))
            self._resources = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def append(self, sequences: Sequences, first_document: int, num_shards: int) -> None:
        """Add a window; its document 0 is document `first_document` of the dataset."""
        segments, files = sequences.segments, self._files
        with storage_errors("write the plan", self.folder):
            num_segments = files["documents"].length
            files["offsets"].append(sequences.offsets[1:] + num_segments)
            files["documents"].append(segments.documents.astype(np.int64) + first_document)
            files["starts"].append(segments.starts)
            files["lengths"].append(segments.lengths)
        self._windows.append(WindowEntry(shards=num_shards, sequences=len(sequences)))

    def finish(
        self,
        dataset_id: str,
        options: dict[str, Any],
        figures: dict[str, Any],
        rows: RowFormat,
        *,
        overwrite: bool,
    ) -> None:
        """Seal the plan and rename it to its final name.

        Raises:
            OutputConflictError: the folder exists, and is not a plan that may be overwritten.
        """
        with storage_errors("write the plan", self.folder):
            entries = [self._files[name].finish() for name in ARRAYS]
            identity = [dataset_id, options, [entry.xxh3_128 for entry in entries]]
            plan = PlanManifest(
                plan_id=xxhash.xxh3_128_hexdigest(canonical_json(identity)),
                dataset_id=dataset_id,
                options=options,
                figures=figures,
                rows=rows,
                num_sequences=self._files["offsets"].length - 1,
                num_segments=self._files["documents"].length,
                windows=self._windows,
                files=entries,
            )
            write_sealed(self._temporary / PLAN_NAME, plan)
            check_plan_folder(self.folder, overwrite=overwrite)
            take_name(self._temporary, self.folder)


class Plan:
    """An opened plan, with memory-mapped arrays. Opening checks names, sizes, dtypes and shapes.

    `check_arrays` checks digests. `rows` is how its sequences become rows.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = local_path(folder, "a plan")
        self._is_checked = False
        path = self.folder / PLAN_NAME
        if not path.is_file():
            hint = "plans are in the folder plans/ of the dataset; create one with tokenmill pack"
            raise UserError("cannot find a plan", where=str(folder), why="no plan.json", hint=hint)
        self.manifest = read_sealed(path, PlanManifest)
        self.rows = self.manifest.rows
        self.offsets: Int64Array = self._array("offsets", self.manifest.num_sequences + 1)
        self.documents = self._array("documents", self.manifest.num_segments)
        self.starts = self._array("starts", self.manifest.num_segments)
        self.lengths = self._array("lengths", self.manifest.num_segments)
        windows = self.manifest.windows
        edges = int(self.offsets[0]), int(self.offsets[-1]), sum(each.sequences for each in windows)
        covered = edges == (0, self.manifest.num_segments, len(self))
        if not covered or any(window.shards < 1 for window in windows):
            raise self.damaged("its windows or offsets do not cover its sequences", path)

    def __len__(self) -> int:
        return self.manifest.num_sequences

    def __repr__(self) -> str:
        return f"<Plan {str(self.folder)!r}: {counted(len(self), 'sequence')}>"

    def __reduce__(self) -> tuple[type[Plan], tuple[Path]]:
        """Pickle the folder only; another process opens the plan again."""
        return type(self), (self.folder,)

    @cached_property
    def window_starts(self) -> Int64Array:
        """The first sequence of each window, shape (num_windows + 1,)."""
        counts = [window.sequences for window in self.manifest.windows]
        return offsets_from_lengths(counts)

    @property
    def plot(self) -> PlanCharts:
        """Charts of the plan, drawn by Altair or Matplotlib: `plan.plot.fill()`."""
        return PlanCharts(self)

    def _repr_html_(self) -> str:
        """Return a table and a picture of some rows, for notebooks. Reads only these rows."""
        manifest, options, figures = self.manifest, self.manifest.options, self.manifest.figures
        try:
            fill = f"{1 - figures['padding'] / figures['row_tokens']:.2%}"
            fill += f", with {counted(figures['cuts'], 'cut')}"
        except (LookupError, TypeError, ValueError, ZeroDivisionError):  # empty, or damaged
            fill = "unknown"
        mean = manifest.num_segments / max(len(self), 1)
        facts = [
            ("rows", f"{len(self):,} of {self.rows.length:,} tokens"),
            ("fill", fill),
            ("segments", f"{manifest.num_segments:,}, {mean:.1f} per row"),
            ("strategy", f"{options.get('packing')}, documents: {options.get('long_documents')}"),
            ("id", manifest.plan_id),
        ]
        rows = list(self.some_rows(8).values())
        title = f"{len(rows)} of {counted(len(self), 'row')}: segments in shades, padding empty"
        picture = pictures.rows(rows, self.rows.length, title)
        return card(f"Plan {self.folder.name}", facts, picture)

    def some_rows(self, most: int) -> dict[int, list[int]]:
        """The lengths of segments in some sequences, from the first to the last."""
        numbers = np.unique(np.linspace(0, len(self) - 1, most if len(self) else 0, dtype=int))
        return {row: [length for *_, length in self.segments(row)] for row in numbers.tolist()}

    def segments(self, sequence: int) -> list[tuple[int, int, int]]:
        """Return (document, start, length) of each segment of a sequence, in tokens.

        Raises:
            UserError: the sequence does not exist.
            VerificationError: its offsets are out of order.
        """
        if not 0 <= sequence < len(self):
            why = f"the plan has {len(self)} sequences, numbered from 0"
            raise UserError(f"cannot find sequence {sequence}", where=str(self.folder), why=why)
        part = slice(int(self.offsets[sequence]), int(self.offsets[sequence + 1]))
        if not 0 <= part.start < part.stop <= self.manifest.num_segments:
            raise self.damaged("its offsets are out of order")
        columns = (self.documents[part], self.starts[part], self.lengths[part])
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def check_offsets(self) -> None:
        """Read all offsets, and raise a VerificationError if they do not ascend."""
        if (self.offsets[1:] <= self.offsets[:-1]).any():
            raise self.damaged("its offsets are out of order")

    def check_dataset(self, dataset: Dataset) -> None:
        """Raise a UserError if the plan belongs to a different dataset."""
        if self.manifest.dataset_id != dataset.manifest.dataset_id:
            raise UserError(
                "the plan belongs to a different dataset",
                where=str(self.folder),
                why=f"it was made for dataset {self.manifest.dataset_id}, "
                f"but this is {dataset.manifest.dataset_id}",
                hint="create a plan for this dataset: tokenmill pack",
            )

    def damaged(self, why: str, path: Path | None = None) -> VerificationError:
        """Return the error for a damaged plan, or a damaged file of it."""
        hint = "create the plan again: tokenmill pack --overwrite"
        where = str(path or self.folder)
        return VerificationError("a plan is damaged", where=where, why=why, hint=hint)

    def check_arrays(self) -> None:
        """Compare the digests of all arrays, once; a VerificationError names what is damaged."""
        if self._is_checked:
            return
        digests = {file.name: file.xxh3_128 for file in self.manifest.files}
        for name in (f"{array}.npy" for array in ARRAYS):
            if file_digest(self.folder / name) != digests[name]:
                raise self.damaged(f"the digest of {name} differs")
        self._is_checked = True

    def _array(self, name: str, length: int) -> npt.NDArray[Any]:
        kinds = {"offsets": ("<i8",), "documents": ("<u4", "<u8")}.get(name, ("<u4",))
        file = f"{name}.npy"
        try:
            return open_listed(self.folder, file, self.manifest.files, kinds, length)
        except ValueError as error:
            raise self.damaged(str(error), self.folder / file) from error


class PlanCharts:
    """Charts of a plan, drawn by Altair or Matplotlib."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan

    def fill(self, library: Library | None = None) -> Any:
        """Draw how many rows there are of each fill: the share of a row that is not padding.

        `library` is "altair" or "matplotlib"; without it, Altair draws if it is installed.
        """
        plan = self._plan
        plan.check_offsets()
        sizes = np.add.reduceat(plan.lengths, plan.offsets[:-1], dtype=np.int64)
        percent = 100 * sizes // plan.rows.row_lengths_of(sizes)
        counts = np.bincount(percent.clip(max=99), minlength=100)
        least, title = int((counts > 0).argmax()), f"Fill of {counted(len(plan), 'row')}"
        names = ("filled with tokens, %", "rows")
        return histogram(title, names, range(least, 101), counts[least:].tolist(), library)


def open_plan(dataset: Dataset | str | Path, name: str | Path | None = None) -> Plan:
    """Open a plan of a dataset. `len(plan)` is its number of sequences.

    Args:
        dataset: a dataset or its folder.
        name: the plan's name in `plans/`, or its folder. If the dataset has a single plan, you
            can omit it.

    Raises:
        UserError: the plan does not exist, or it belongs to a different dataset; without a name,
            the dataset has no plan or several.
    """
    dataset = dataset if isinstance(dataset, Dataset) else Dataset(dataset)
    name = _only_plan(dataset, "name={name!r}") if name is None else name
    own, path = dataset.folder / "plans", local_path(name, "a plan")
    if dataset.origin is not None and path.name == str(name):
        _bring(dataset.origin, str(name))
    inside = path.name == str(name) and (own / path / PLAN_NAME).is_file()
    folder = own / path if inside else path
    if not (folder / PLAN_NAME).is_file():
        meant = _meant(str(name), dataset.plans)
        only = "".join(f"the only plan is {each}; " for each in dataset.plans)
        choice = "choose one of these, or " if len(dataset.plans) > 1 else only
        raise UserError(
            f"cannot find the plan {str(name)!r}",
            where=str(own),
            why=f"the dataset has {', '.join(dataset.plans) or 'no plans'}",
            hint=f"did you mean {meant}?" if meant else f"{choice}create one with tokenmill pack",
        )
    plan = Plan(folder)
    plan.check_dataset(dataset)
    return plan


def chosen_plan(dataset: Dataset, plan: Plan | str | Path | None) -> Plan:
    """Return the plan that an argument `plan` or the flag --plan chooses; see `open_plan`."""
    if plan is None:
        plan = _only_plan(dataset, "--plan {quoted}, or plan={name!r} in Python")
    return plan if isinstance(plan, Plan) else open_plan(dataset, plan)


def _only_plan(dataset: Dataset, choice: str) -> str:
    """The name of the only plan; `choice` says how to name one of several."""
    names = dataset.plans
    if len(names) == 1:
        return names[0]
    number, why = "no plan", "rows are built from a plan"
    hint = f"create one: tokenmill pack {dataset.location} --sequence-length 4096"
    if names:
        number, why = "several plans", f"they are {', '.join(names)}"
        choice = choice.format(name=names[0], quoted=shlex.quote(names[0]))
        hint = f"choose one, for example {choice}"
    raise UserError(f"the dataset has {number}", where=dataset.location, why=why, hint=hint)


def _bring(origin: Origin, name: str) -> None:
    """Download a plan of a dataset in a bucket, if it exists."""
    folder = origin.obtain_plan(name)
    if folder is not None:
        manifest = read_sealed(folder / PLAN_NAME, PlanManifest)
        known = {f"{array}.npy" for array in ARRAYS}
        origin.obtain((file for file in manifest.files if file.name in known), f"plans/{name}/")


def _meant(name: str, names: list[str]) -> str:
    """Return the only plan with this prefix, or the closest name; "" if it is ambiguous.

    A plan for another sequence length is never meant: the numbers in both names must be equal.
    """
    numbers = re.findall(r"\d+", name)
    equal = [each for each in names if re.findall(r"\d+", each)[: len(numbers)] == numbers]
    longer = [each for each in equal if each.startswith(name)]
    return "" if len(longer) > 1 else nearest(name, equal)


def plan_name_problem(name: str) -> str:
    """Return why a new plan cannot have a name, as part of a sentence; "" if it can.

    Its dataset can be copied to any file system, and object stores take most names.
    """
    if name.startswith(".") or name.endswith((".", " ")):
        return "begins with a dot, or ends with a dot or a space"
    if not is_safe_path(name) or set(name) & set('/<>:"|?*'):
        return "is empty, or contains a slash, a control character or one of " + '<>:"|?*\\'
    if _RESERVED.fullmatch(name):
        return "is the name of a device on Windows"
    return f"has more than {MAX_NAME_BYTES} bytes" if len(name.encode()) > MAX_NAME_BYTES else ""


def check_plan_folder(folder: Path, *, overwrite: bool) -> None:
    """Raise an OutputConflictError if the folder exists and must not be replaced."""
    if not folder.exists() and not folder.is_symlink():
        return
    is_plan = (folder / PLAN_NAME).is_file() and not folder.is_symlink()
    if is_plan and overwrite:
        refuse_strangers(folder, _FILES.__contains__)
    else:
        raise OutputConflictError(
            "the folder of the plan already exists",
            where=str(folder),
            why="it contains a plan"
            if is_plan
            else "it contains files that are not part of a plan",
            hint="replace a plan with tokenmill pack --overwrite, or use another name with --name",
        )
