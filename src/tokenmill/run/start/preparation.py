"""Resolve and check a build before it starts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from tokenmill.core.errors import EngineError, UserError
from tokenmill.encode.boundary_policy import BoundaryTokens, resolve_boundary_tokens
from tokenmill.encode.engine import Reference
from tokenmill.encode.engine_ranking import Candidates, rank_engines
from tokenmill.encode.kinds import KINDS, load_reference
from tokenmill.encode.probe import probe, require_harmless
from tokenmill.encode.tokenizer import TokenizerFile
from tokenmill.encode.tokenizer_file import load_tokenizer_file
from tokenmill.read.fields import Fields
from tokenmill.read.formats.tables.isolated import end_idle_parsers
from tokenmill.read.source import Access, Source
from tokenmill.read.sources import commits_of, list_sources
from tokenmill.read.units import Stream, Unit, choose_unit_bytes, count_units, cut_units
from tokenmill.run.commit.identity import Identity, deciding_libraries, versions
from tokenmill.run.executor import Executor
from tokenmill.run.local.processes import LocalProcesses
from tokenmill.run.machine.resources import Resources
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.start.agreement import Start
from tokenmill.run.start.contents import Contents
from tokenmill.run.start.conversations import chat_policies, conversations_of
from tokenmill.run.start.inputs import (
    input_identity,
    ready_sources,
    refuse_output_among,
    refuse_output_inside,
    sample_texts,
)
from tokenmill.store.layout import token_dtype
from tokenmill.store.policies import Policies


@dataclass(frozen=True, slots=True)
class Resolution:
    """A recipe, resolved as far as possible before anything is downloaded."""

    inputs: list[str]
    """Inputs as the user named them."""
    out: str
    fields: Fields
    policies: Policies
    engine: str
    """The engine as the user named it."""
    sources: list[Source]
    file: TokenizerFile
    candidates: Candidates | None
    """None if the named engine cannot be used. A complete dataset does not need it."""
    reference: Reference
    boundary: BoundaryTokens

    @property
    def dtype_name(self) -> str:
        """The dtype of the token ids in shards."""
        return token_dtype(self.reference.largest_id).name

    @property
    def num_bytes(self) -> int:
        """The size of all inputs on disk, in bytes."""
        return sum(source.num_bytes for source in self.sources)


@dataclass(frozen=True, slots=True)
class Preparation(Resolution):
    """A resolved recipe with sources that are ready to read."""

    candidates: Candidates
    resources: Resources
    items: list[Unit | Stream]
    sample: list[str]
    """Documents of the inputs, for calibration."""
    tokenizer_source: str
    """The description that creates a Python tokenizer in a worker. "" for other tokenizers."""


def resolve(
    recipe: Recipe, tokenizer: object, access: Access, executor: Executor | None = None
) -> Resolution:
    """Load the tokenizer and find the sources. Downloads no input and writes nothing.

    `tokenizer` is a tokenizer object to use instead of the one that the recipe names. `access`
    says how to read remote inputs. Local workers of `executor` start in the meantime.

    Raises:
        UserError: the recipe asks for something impossible.
    """
    named = recipe.tokenizer if tokenizer is None else tokenizer
    file = require_harmless(load_tokenizer_file(named, recipe.encode.rank_encoding))
    is_chat = recipe.chat.chat is not None
    control = recipe.encode.special_tokens == "control" or is_chat
    refuse_output_among(recipe.inputs, recipe.out)
    sources = list_sources(recipe.inputs, recipe.read.format, access)
    refuse_output_inside(sources, recipe.out)
    candidates = None
    with contextlib.suppress(UserError):
        candidates = rank_engines(file, control, recipe.encode.engine)
    if isinstance(executor, LocalProcesses):
        unit_bytes = choose_unit_bytes(sources, slow=KINDS[file.kind].is_slow)
        executor.expect(count_units(sources, recipe.read.fields, unit_bytes))
        if candidates:
            executor.preload(file, control, candidates.names[0])
    reference = load_reference(file, control)
    boundary = resolve_boundary_tokens(reference, file, recipe.encode.eos, recipe.encode.pad)
    policies, fields = recipe.policies, recipe.read.fields
    if is_chat:  # the template writes the tokens at the start of a conversation
        chat = chat_policies(recipe.chat, file, reference, boundary.eos_id)
        policies = msgspec.structs.replace(policies, chat=chat)
        fields = replace(fields, rendering=conversations_of(policies, reference.special_tokens))
        if policies.has_template:
            boundary = replace(boundary, prefix=())
    if fields.has_no_loss:
        reference.encode_with_offsets("")  # a Python tokenizer refuses
    return Resolution(
        inputs=recipe.inputs,
        out=recipe.out,
        fields=fields,
        policies=policies,
        engine=recipe.encode.engine,
        sources=sources,
        file=file,
        candidates=candidates,
        reference=reference,
        boundary=boundary,
    )


def prepare(
    resolution: Resolution, access: Access, resources: Resources, *, in_process: bool = False
) -> Preparation:
    """Download remote inputs, and read the first records of the inputs.

    With `in_process`, all units will run in this process.

    Raises:
        UserError: the recipe asks for something impossible.
        TokenmillError: a file cannot be fetched.
    """
    file, fields, policies = resolution.file, resolution.fields, resolution.policies
    candidates = resolution.candidates or rank_engines(
        file, policies.control_tokens, resolution.engine
    )
    sources = ready_sources(
        resolution.sources, fields, policies.read.format, resolution.out, access
    )
    sample = sample_texts(sources, fields)
    if why := probe(file, sample):
        hint = "remove the document, or use another tokenizer"
        raise EngineError("the tokenizer fails on a document", why=why, hint=hint)
    unit_bytes = choose_unit_bytes(sources, slow=KINDS[file.kind].is_slow)
    preparation = Preparation(
        inputs=resolution.inputs,
        out=resolution.out,
        fields=fields,
        policies=policies,
        engine=resolution.engine,
        sources=sources,
        file=file,
        reference=resolution.reference,
        candidates=candidates,
        boundary=resolution.boundary,
        resources=resources,
        items=list(cut_units(sources, fields, unit_bytes)),
        sample=sample,
        tokenizer_source="" if in_process else source_for_workers(file),
    )
    if not in_process:
        end_idle_parsers()  # each worker has its own
    return preparation


def source_for_workers(file: TokenizerFile) -> str:
    """Return the description that creates a Python tokenizer in a worker. "" for others."""
    if not KINDS[file.kind].is_described:
        return ""  # loaded from the dataset's own files
    from tokenmill.encode.references.python_source import pickled_source

    return file.source or pickled_source(file.tokenizer)


def identity_of(resolution: Resolution) -> Identity:
    """Return the identity that a resumed build must agree with."""
    return Identity(
        commits=commits_of(resolution.sources) or msgspec.UNSET,
        inputs=[input_identity(source) for source in resolution.sources],
        tokenizer=resolution.file.sha256,
        eos_id=resolution.boundary.eos_id,
        pad_id=resolution.boundary.pad_id,
        prefix_ids=list(resolution.boundary.prefix),
        policies=resolution.policies,
        engine=resolution.engine,
        versions=versions(),
    )


def start_of(resolution: Resolution, on_compare: Callable[[Source], None]) -> Start:
    """Return the start of a build, for comparison with the output folder."""
    kind, sources = resolution.file.kind, resolution.sources
    unit_bytes = choose_unit_bytes(sources, slow=KINDS[kind].is_slow)
    renderers = {"jinja2"} if resolution.policies.chat else set()
    return Start(
        noun="build",
        identity=identity_of(resolution),
        inputs=resolution.inputs,
        deciding=lambda engine: deciding_libraries(kind, engine, sources) | renderers,
        contents=Contents(sources, resolution.fields, unit_bytes, on_compare),
    )
