"""What the main path needs of a kind of run.

To add a kind of run:

1. Add a struct with its own tag to `run/job.py`, and to the union in `Job`. It holds what decides
   the result and what workers need.
2. Add a module to `run/units/` with a `TaskRunner`, which loads once what a worker needs, and a
   `UnitTask`, which gets groups of documents and returns files. Reading, digests, counts, timing,
   audits and error reports are the job of `UnitAttempt`. Add a case to `load_task` (`unit.py`).
3. Add a `Task` here, and a function to `run/pipeline.py` that resolves it and calls `_run`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from tokenmill.core.errors import EngineError
from tokenmill.core.records import Advance
from tokenmill.encode.engine import Encoder, Engine
from tokenmill.encode.exactness import Exam
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.probe import probe
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.isolated import end_idle_parsers
from tokenmill.read.source import Access, FetchListener, Source
from tokenmill.read.units import Stream, Unit, choose_unit_bytes, cut_units
from tokenmill.run.identity import deciding_libraries, input_identity, versions
from tokenmill.run.inputs import ready_sources, sample_texts
from tokenmill.run.job import Job
from tokenmill.run.journal.ledger import Ledger, Reused
from tokenmill.run.machine import Resources
from tokenmill.run.progress import Listener, ProgressBoard, Snapshot
from tokenmill.run.recipe.options import LimitOptions, ReadOptions, ResourceOptions
from tokenmill.run.workspace import OutputKind, Workspace
from tokenmill.store.manifest import Run

R = TypeVar("R")
P = TypeVar("P")


class AnyRecipe(Protocol):
    """The options that all kinds of runs have."""

    @property
    def inputs(self) -> list[str]:
        """The inputs as the user named them."""

    @property
    def out(self) -> str:
        """The output folder or bucket prefix."""

    @property
    def read(self) -> ReadOptions:
        """The options of reading."""

    @property
    def limits(self) -> LimitOptions:
        """The limits on bad input."""

    @property
    def resources(self) -> ResourceOptions:
        """The options of processes and memory."""


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
    output: ClassVar[OutputKind]
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
        self._try(sample)
        if not in_process:
            end_idle_parsers()  # each worker has its own
        ready = replace(self, sources=sources, sample=sample)
        return replace(
            ready,
            items=list(cut_units(sources, fields, ready.unit_bytes)),
            tokenizer_source="" if in_process else source_for_workers(self.file),
        )

    def identity(self) -> dict[str, Any]:
        """Return what a later attempt must agree with; see `run/identity.py`."""
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
    def examine(self) -> Exam:
        """Return the exam that the engine of every worker must pass. Called in a thread."""

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
        """Return the sources, ready to read."""
        recipe = self.recipe
        return ready_sources(self.sources, self.fields, recipe.read.format, recipe.out, access)

    def _try(self, sample: Sequence[str]) -> None:
        if why := probe(self.file, sample):
            name = "split" if self.noun == "count" else "tokenizer"
            hint = f"remove the document, or use another {name}"
            raise EngineError(f"the {name} fails on a document", why=why, hint=hint)


def source_for_workers(file: TokenizerFile) -> str:
    """Return the description that creates a Python tokenizer in a worker. "" for others."""
    if not KINDS[file.kind].is_described:
        return ""  # loaded from the dataset's own files
    from tokenmill.encode.references.python_source import pickled_source

    return file.source or pickled_source(file.tokenizer)
