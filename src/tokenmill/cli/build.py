"""tokenmill build"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from tokenmill.cli.parser import Events, Section, Verbose, flag_of
from tokenmill.cli.recipe_command import RECIPE_SECTIONS, RecipeCommand
from tokenmill.cli.tables import print_json
from tokenmill.cli.terminal import fitted
from tokenmill.core.errors import UserError
from tokenmill.core.options import Overwrite, about, make_options
from tokenmill.core.values import safe_text
from tokenmill.run.machine import choose_resources
from tokenmill.run.pool import WorkerPool
from tokenmill.run.recipe.options import Out, Positive, Recipe

if TYPE_CHECKING:
    from tokenmill.run.launch import AgentShare
    from tokenmill.run.tasks.encode import BuildReport

LAUNCHER_OF = {"slurm": "slurm", "cpus_per_agent": "ray"}
"""The launcher of each option that only one launcher accepts."""


class LaunchOptions(msgspec.Struct, kw_only=True):
    """Options that only launchers of clusters use. Each takes a value."""

    on: Annotated[
        str | None,
        about("start the agents on a cluster: slurm, ray or ray://address", metavar="WHERE"),
    ] = None
    agents: Annotated[Positive | None, about("number of agents, one per machine")] = None
    cpus_per_agent: Annotated[
        Positive | None,
        about("Ray: CPUs of each agent; a node runs as many agents as it has room for"),
    ] = None
    slurm: Annotated[
        str | None,
        about(
            "more options for sbatch: --slurm='--partition=cpu --time=8:00:00'", metavar="OPTIONS"
        ),
    ] = None


class ClusterOptions(LaunchOptions, kw_only=True):
    """Where to run the build, and on how many machines."""

    agent: Annotated[
        str | None,
        about(
            "run as agent I of N, counted from 0; all agents build one dataset "
            "together; auto: use the variables of Slurm arrays or Kubernetes",
            metavar="I/N",
        ),
    ] = None


class Build(RecipeCommand, kw_only=True):
    """Build a dataset, showing progress."""

    usage: ClassVar[str] = "INPUT ... --tokenizer TOKENIZER --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill build data/*.jsonl.zst --tokenizer tokenizer.json --out corpus/
  tokenmill build data/ --tokenizer meta-llama/Llama-3.1-8B --out corpus/ \\
      --text-field content --validation 0.1% --sequence-length 4096
  tokenmill build --config recipe.yaml --set resources.workers=8
  tokenmill build data/ --tokenizer tokenizer.json --out corpus/ --on slurm --agents 10 \\
      --slurm='--cpus-per-task=32 --time=8:00:00'"""
    sections: ClassVar[tuple[Section, ...]] = (
        *RECIPE_SECTIONS,
        Section("cluster", ClusterOptions),
    )

    out: Out | None = None
    overwrite: Annotated[
        Overwrite, about("replace a dataset; =first deletes the old one first")
    ] = False
    verbose: Verbose = False
    json: Events = False

    def run(self) -> None:
        recipe = self.recipe(self.out)
        cluster = make_options(ClusterOptions, self.given.get("cluster", {}), "the command")
        self._check(recipe, cluster)
        if cluster.on is not None:
            self._launch(recipe, cluster, cluster.on)
            return
        share = None
        if cluster.agent is not None:
            from tokenmill.run.launch import parse_agent

            share = parse_agent(cluster.agent, os.environ)
        if recipe.export is not UNSET:
            from tokenmill.api.exporting import check_export

            check_export(recipe)
        with WorkerPool(choose_resources(recipe.resources)) as executor:
            self._build(recipe, share, executor)

    def _check(self, recipe: Recipe, cluster: ClusterOptions) -> None:
        """Raise a UserError if options of a cluster cannot be combined."""
        if cluster.on is None:
            names = [name for name in LaunchOptions.__struct_fields__ if getattr(cluster, name)]
            if names:
                raise UserError(f"{' and '.join(map(flag_of, names))} can only be used with --on")
            if cluster.agent is None:
                return
        elif cluster.agent is not None:
            raise UserError("--agent cannot be combined with --on, which numbers agents")
        flag = "--agent" if cluster.on is None else "--on"
        if self.overwrite:
            why = "agents would remove each other's work"
            hint = "remove the old dataset first, or build into a new folder"
            raise UserError(f"--overwrite cannot be combined with {flag}", why=why, hint=hint)
        if recipe.export is not UNSET:
            raise UserError(
                f"an export cannot be combined with {flag}",
                why="agents build the dataset and its plan, but one process must write the rows",
                hint=f"leave it out now; afterwards, run the same command with it, without {flag}",
            )

    def _build(self, recipe: Recipe, share: AgentShare | None, executor: WorkerPool) -> None:
        """Build on this machine. The imports below run while the first worker starts."""
        from tokenmill.cli.display import display_for, events_for, naming_kept_units
        from tokenmill.cli.summary import BUILD
        from tokenmill.cli.tables import next_text
        from tokenmill.reports.space import checking_space
        from tokenmill.run.pipeline import build
        from tokenmill.run.tasks.encode import BuildReport

        with (
            naming_kept_units(recipe.out),
            display_for(BUILD, json=self.json, verbose=self.verbose) as display,
            _telling_of_compilation(recipe, display.compiling),
        ):
            events = events_for(display)
            report = build(
                recipe,
                overwrite=self.overwrite,
                events=events if share else checking_space(events),
                executor=executor,
                share=share,
            )
            if isinstance(report, BuildReport):
                display.finish(report)
                self._export(recipe, report)
                if not self.json:
                    after = (("tokenmill", verb, report.out) for verb in ("verify", "inspect"))
                    print(f"\n{next_text(*after)}")
            else:
                display.leave(report.out)

    def _export(self, recipe: Recipe, report: BuildReport) -> None:
        """Write the rows that the recipe asks for."""
        if recipe.export is UNSET:
            return
        from tokenmill.api.exporting import export_plans
        from tokenmill.cli.export import export_lines
        from tokenmill.cli.meter import meter

        with meter() as advance:
            replaced = bool(self.overwrite)
            exports = export_plans(recipe, report, overwrite=replaced, advance=advance)
        for each in exports:
            if self.json:
                values = {"event": "exported", "folder": str(each.folder), **asdict(each.manifest)}
                print_json(values)
            else:
                note = "; nothing to do: the export is complete" if each.already_there else ""
                print(f"\nrows: {safe_text(str(each.folder))}{note}")
                print(fitted("\n".join(export_lines(each))))

    def _launch(self, recipe: Recipe, cluster: ClusterOptions, where: str) -> None:
        """Hand the build to the launcher of a cluster."""
        from tokenmill.run.launch import LaunchRequest, launch

        for name, launcher in LAUNCHER_OF.items():
            if getattr(cluster, name) is not None and where.partition("://")[0] != launcher:
                raise UserError(f"{flag_of(name)} can only be used with --on {launcher}")
        request = LaunchRequest(
            where=where,
            recipe=recipe,
            command=tuple(_without_launch(self.command_line)),
            num_agents=cluster.agents,
            options={name: getattr(cluster, name) for name in LaunchOptions.__struct_fields__},
            say=lambda line: print(line, file=sys.stderr, flush=True),
        )
        launch(request)


def _telling_of_compilation(
    recipe: Recipe, tell: Callable[[], None]
) -> contextlib.AbstractContextManager[None]:
    """Call `tell` once if the plan of a build must be compiled first, which takes seconds."""
    if recipe.pack.sequence_length is None:
        return contextlib.nullcontext()  # no plan, so numba need not be imported
    from tokenmill.kernels.compiled import telling_of_compilation

    return telling_of_compilation(tell)


def _without_launch(words: Sequence[str]) -> Iterator[str]:
    """A command line without the options of launchers."""
    flags = {flag_of(name) for name in LaunchOptions.__struct_fields__}
    remaining = iter(words)
    for word in remaining:
        if word in flags:
            next(remaining, None)
        elif word.partition("=")[0] not in flags:
            yield word
        if word == "--":
            yield from remaining
