"""What the main path needs of a kind of run.

To add a kind of run:

1. Add a struct with its own tag to `run/job.py`, and to the union in `Job`. It holds what decides
   the result and what workers need.
2. Add a module to `run/units/` with a `TaskRunner`, which loads once what a worker needs, and a
   `UnitTask`, which gets groups of documents and returns files. Reading, digests, counts, timing,
   audits and error reports are the job of `UnitAttempt`. Add a case to `load_task` (`worker.py`).
3. Add a `Task` here, and a function to `run/pipeline.py` that resolves it and calls `_run`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from tokenmill.core.errors import DataError, EngineError, UserError
from tokenmill.core.globs import is_glob, matches
from tokenmill.core.records import Advance
from tokenmill.encode.engine import Encoder, Engine
from tokenmill.encode.exactness import Exam
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import probe
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.documents import Reader
from tokenmill.read.fields import Fields
from tokenmill.read.formats.format import FORMATS, Extent
from tokenmill.read.formats.tables.isolated import end_idle_parsers
from tokenmill.read.source import Access, FetchListener, ReadMode, Source
from tokenmill.read.sources import check_before_fetch, check_fields, fetch_sources
from tokenmill.read.units import Stream, Unit, choose_unit_bytes, cut_units, decompressed_bytes
from tokenmill.run.job import Job, deciding_libraries, input_identity, versions
from tokenmill.run.journal.ledger import Ledger, Reused
from tokenmill.run.machine import Resources
from tokenmill.run.progress import Listener, ProgressBoard, Snapshot
from tokenmill.run.recipe.options import (
    CountRecipe,
    MeasureRecipe,
    ReadOptions,
    Recipe,
    ResourceOptions,
)
from tokenmill.run.workspace import Workspace
from tokenmill.store.cloud.names import ObjectName, is_remote
from tokenmill.store.manifest import Run

R = TypeVar("R")
P = TypeVar("P")


AnyRecipe = Recipe | CountRecipe | MeasureRecipe


@dataclass(slots=True)
class RunEvents(Generic[P]):
    """Callbacks of a build or a count. All are optional.

    `on_prepared` is called once before the first unit, with the task. `on_engine` gets the name of
    each engine that is tried, and a remark if calibration rejected it.
    """

    on_prepared: Callable[[P], None] = lambda prepared: None
    on_engine: Callable[[str, str], None] = lambda engine, remark: None
    on_progress: Listener = lambda snapshot: None
    on_download: FetchListener = lambda progress: None
    on_compare: Callable[[Source], None] = lambda source: None
    """Called before the content of an input is compared because its modification time changed."""
    on_pack: Advance = lambda stage, done, total: None


@dataclass(frozen=True, slots=True)
class Departure:
    """The result of an agent that left because other agents hold all remaining work."""

    out: str
    snapshot: Snapshot
    reused: Reused | None


@dataclass(frozen=True, slots=True)
class Ended:
    """A run whose units are all done."""

    workspace: Workspace
    ledger: Ledger
    board: ProgressBoard
    reused: Reused | None
    fingerprint: str
    """See `Task.fingerprint`."""
    record: Callable[[], Run]
    """Returns the record of the run."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC, Generic[R]):
    """A kind of run in the main process: its job, and the objects that go with it.

    A resolved task has downloaded nothing. A prepared one has sources that can be read, and units.
    """

    noun: ClassVar[str]
    """The name of the run in errors, such as "build"."""
    takes_agents: ClassVar[bool] = False
    """Whether several agents may share the work."""
    job: Job
    recipe: AnyRecipe
    sources: Sequence[Source]
    file: TokenizerFile
    """The tokenizer, or the steps of a split in the form of one."""
    resources: Resources
    items: Sequence[Unit | Stream] = ()
    sample: Sequence[str] = field(default=(), repr=False)
    """Documents of the inputs, for calibration."""
    tokenizer_source: str = ""
    """See `Setup.tokenizer_source`."""

    @property
    def fields(self) -> Fields:
        """The fields to read from each record."""
        return self.job.fields

    @property
    def num_bytes(self) -> int:
        """The size of all inputs on disk, in bytes."""
        return sum(source.num_bytes for source in self.sources)

    @property
    def disk_ratio(self) -> float:
        """Bytes of sources on disk for each byte that they hold decompressed, estimated."""
        return self.num_bytes / max(sum(map(decompressed_bytes, self.sources)), 1)

    @property
    def unit_bytes(self) -> int:
        """The size of units."""
        return choose_unit_bytes(self.sources, slow=self.job.is_slow)

    @property
    def token_bytes(self) -> int:
        """The bytes that a token takes in the output, for progress."""
        return 0

    def prepared(self, access: Access, *, in_process: bool = False) -> Self:
        """Download remote inputs, read their first records, and cut them into units.

        With `in_process`, all units will run in this process.

        Raises:
            UserError: the recipe asks for something impossible.
            TokenmillError: a file cannot be fetched.
        """
        fields, sources = self.fields, self._ready(access)
        sample = sample_texts(sources, fields)
        if why := probe(self.file, sample):
            name = "split" if self.noun == "count" else "tokenizer"
            hint = f"remove the document, or use another {name}"
            raise EngineError(f"the {name} fails on a document", why=why, hint=hint)
        ready = replace(self, sources=sources, sample=sample)
        items = list(cut_units(sources, fields, ready.unit_bytes))
        if in_process:
            return replace(ready, items=items)
        end_idle_parsers()  # each worker has its own
        return replace(ready, items=items, tokenizer_source=source_for_workers(self.file))

    def identity(self) -> dict[str, Any]:
        """Return what a later attempt must agree with; see `run/job.py`."""
        inputs = [input_identity(source) for source in self.sources]
        return {**self.job.decides, "inputs": inputs, "versions": versions()}

    def deciding(self, engine: str) -> frozenset[str]:
        """Return the libraries that affect the output of an engine."""
        return deciding_libraries(self.file.kind, engine, self.sources)

    def versions_for(self, engine: str) -> dict[str, str]:
        """Return the installed versions of the libraries that affect the output of an engine."""
        names = self.deciding(engine)
        return {name: known for name, known in versions().items() if name in names}

    def fingerprint(self) -> str:
        """Return the fingerprint of the tokenizer. "" if the output does not record it."""
        return ""

    @property
    @abstractmethod
    def encoder(self) -> Encoder:
        """The reference, which defines the results of engines."""

    @abstractmethod
    def examine(self, engines: Sequence[str]) -> Exam:
        """Return the exam that the engine of every worker must pass. Called in a thread.

        `engines` are those that may run, first to last.
        """

    @property
    def local_engine(self) -> Callable[[], Engine | None] | None:
        """Creates an engine for units in this process, if the tokenizer is a Python object.

        Such an object cannot always be loaded again from its file. Call this only once the exam is
        ready.
        """
        return None

    def begin(self, workspace: Workspace) -> None:
        """Write what workers need."""

    @abstractmethod
    def finish(self, ended: Ended) -> R:
        """Complete the output, and return the result of the run.

        Raises:
            DataError: too many records were rejected, or there are no documents.
        """

    def found(self, workspace: Workspace, on_compare: Callable[[Source], None]) -> R:
        """Return the result of a complete output, after comparing it with this task.

        Raises:
            OutputConflictError: it was made from something else.
        """
        raise NotImplementedError(f"a {self.noun} leaves no output")

    def _ready(self, access: Access) -> Sequence[Source]:
        """Return the sources, downloaded if necessary, after checking that they have all fields.

        Raises:
            UserError: a field is missing, or a file cannot be read in this way.
            TokenmillError: a file cannot be fetched.
        """
        check_before_fetch(self.sources, self.fields, access)
        fetched = fetch_sources(self.sources, access)
        refuse_output_inside(fetched, self.recipe.out)
        check_fields(fetched, self.fields)
        return fetched


def source_for_workers(file: TokenizerFile) -> str:
    """Return the description that creates a Python tokenizer in a worker. "" for others."""
    if not KINDS[file.kind].is_described:
        return ""  # loaded from the dataset's own files
    from tokenmill.encode.references.python_source import pickled_source

    return file.source or pickled_source(file.tokenizer)


MAX_SAMPLE_TEXTS = 200
MAX_SAMPLE_CHARACTERS = 400_000
SAMPLE_BYTES = 1 << 18
MAX_WHOLE_BYTES = 4 << 20
WRITTEN = (
    *("manifest.json", "run.json", "tokenizer/tokenizer.json", "work/job.json"),
    *("tokens/0.bin", "tokens/0.idx", "documents/0.parquet", "rejected/0.jsonl"),
)
"""One example of each kind of file that a build writes."""


def access_of(read: ReadOptions, resources: ResourceOptions, listener: FetchListener) -> Access:
    """Return how to read remote inputs."""
    mode: ReadMode = "stream" if read.streaming else "download"
    return Access(mode, resources.cache_dir, listener)


def refuse_output_inside(sources: Sequence[Source], out: str) -> None:
    """Raise a UserError if an input lies in the output."""
    why = "a build never reads what it writes"
    if is_remote(out):
        place = f"{ObjectName.parse(out)}/"
        for source in sources:
            if source.location.startswith(place):
                what = "an input is inside the output prefix"
                raise UserError(what, where=source.location, why=why)
        return
    folder = Path(out).resolve()
    for source in sources:
        if source.path and source.path.is_relative_to(folder):  # paths are resolved
            raise UserError("an input is inside the output folder", where=str(source.path), why=why)


def refuse_output_among(inputs: Sequence[str], out: str) -> None:
    """Raise a UserError if an input includes the output prefix.

    Agents that start later would read the output as input.
    """
    if not is_remote(out):
        return
    output = ObjectName.parse(out)
    for name in inputs:
        if not is_remote(name):
            continue
        named = ObjectName.parse(name)
        if named.store == output.store and _takes(named.key, output.key.split("/")):
            raise UserError(
                "the output prefix is inside an input",
                where=str(output),
                why=f"the input {name} would include what the build writes",
                hint="choose a prefix that is not below an input",
            )


def _takes(key: str, output: Sequence[str]) -> bool:
    """Whether a folder or a glob includes files that are written below an output."""
    if not is_glob(key):
        return not key or list(output[: key.count("/") + 1]) == key.split("/")
    pattern = key.split("/")
    folders = (output[: end + 1] for end in range(len(output)))
    return any(matches(folder, pattern, hidden=False) for folder in folders) or any(
        matches([*output, *written.split("/")], pattern, hidden=False) for written in WRITTEN
    )


def sample_texts(sources: Sequence[Source], fields: Fields) -> list[str]:
    """Return the first documents of some sources, for calibration and estimates."""
    reader = Reader(sources, fields, SAMPLE_BYTES)
    chosen = [source for source in sources if source.num_bytes and not _too_large(source, fields)]
    chosen = chosen[:: max(len(chosen) // 8, 1)][:8]
    texts: list[str] = []
    for source in chosen:
        budget = MAX_SAMPLE_CHARACTERS // len(chosen)
        count = MAX_SAMPLE_TEXTS // len(chosen)
        try:
            batch = next(reader.read(Extent(source.index)), None)
        except DataError:
            continue
        for text in batch.texts[:count] if batch else ():
            texts.append(text[:budget])
            budget -= len(text)
            if budget <= 0:
                break
    return texts


def _too_large(source: Source, fields: Fields) -> bool:
    """Whether a source must be read whole and is too large for that."""
    whole = FORMATS[source.format].reads_whole(fields)
    return whole and decompressed_bytes(source) > MAX_WHOLE_BYTES
