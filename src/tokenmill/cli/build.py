"""tokenmill build"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET
from msgspec.structs import asdict

from tokenmill.cli.options import add_overwrite, add_recipe_arguments, recipe_from
from tokenmill.cli.parser import Parser, whole_number
from tokenmill.cli.terminal import safe_text
from tokenmill.core.errors import UserError
from tokenmill.run.local.processes import LocalProcesses
from tokenmill.run.machine.resources import choose_resources
from tokenmill.run.recipe.options import Recipe

if TYPE_CHECKING:
    from tokenmill.run.agents.shard import Shard
    from tokenmill.run.build_report import BuildReport

EXAMPLES = """\
examples:
  tokenmill build data/*.jsonl.zst --tokenizer tokenizer.json --out corpus/
  tokenmill build data/ --tokenizer meta-llama/Llama-3.1-8B --out corpus/ \\
      --text-field content --validation 0.1% --sequence-length 4096
  tokenmill build --config recipe.yaml --set resources.workers=8
  tokenmill build data/ --tokenizer tokenizer.json --out corpus/ \\
      --on slurm --agents 10 --slurm='--cpus-per-task=32 --time=8:00:00'"""
CLUSTER_OPTIONS = ("on", "agents", "slurm", "cpus_per_agent")
"""Options that only launchers of clusters use. Each takes a value."""
LAUNCHER_OF = {"slurm": "slurm", "cpus_per_agent": "ray"}
"""The launcher of each option that only one launcher accepts."""


def add_arguments(parser: Parser) -> None:
    """The options of this command."""
    parser.usage = "tokenmill build INPUT ... --tokenizer TOKENIZER --out DIR [options]"
    parser.epilog = EXAMPLES
    add_recipe_arguments(parser)
    add_overwrite(parser, "a dataset")
    parser.add_argument("--json", action="store_true", help="events as JSON lines on stdout")
    _add_cluster_options(parser)


def _add_cluster_options(parser: Parser) -> None:
    group = parser.add_argument_group("cluster", "where to run the build, and on how many machines")
    group.add_argument(
        "--shard",
        metavar="I/N",
        help="run as agent I of N, counted from 0; all agents build one dataset together; auto: "
        "use the variables of Slurm arrays or Kubernetes",
    )
    group.add_argument(
        "--on", metavar="WHERE", help="start the agents on a cluster: slurm, ray or ray://address"
    )
    group.add_argument(
        "--agents", type=whole_number, metavar="N", help="number of agents, one per machine"
    )
    group.add_argument(
        "--cpus-per-agent",
        type=whole_number,
        metavar="N",
        help="Ray: CPUs of each agent; a node runs as many agents as it has room for",
    )
    group.add_argument(
        "--slurm",
        metavar="OPTIONS",
        help="more options for sbatch: --slurm='--partition=cpu --time=8:00:00'",
    )


def run(options: argparse.Namespace) -> int:
    """Build, showing progress; returns the exit code."""
    recipe = recipe_from(options, "tokenmill build")
    if options.on is not None:
        return _launch(recipe, options)
    if unused := [_flag(name) for name in CLUSTER_OPTIONS if getattr(options, name) is not None]:
        raise UserError(f"{' and '.join(unused)} can only be used with --on")
    shard = _shard(recipe, options)
    if recipe.export is not UNSET:
        from tokenmill.api.exporting import check_export

        check_export(recipe)
    with LocalProcesses(choose_resources(recipe.resources)) as executor:
        return _build(recipe, options, shard, executor)


def _shard(recipe: Recipe, options: argparse.Namespace) -> Shard | None:
    """The agent that `--shard` names, or None for a single one."""
    if options.shard is None:
        return None
    from tokenmill.run.agents.shard import parse_shard

    shard = parse_shard(options.shard, os.environ)
    if options.overwrite:
        why = "agents would remove each other's work"
        hint = "remove the old dataset first"
        raise UserError("--overwrite cannot be combined with --shard", why=why, hint=hint)
    _refuse_export(recipe, "--shard")
    return shard


def _build(
    recipe: Recipe, options: argparse.Namespace, shard: Shard | None, executor: LocalProcesses
) -> int:
    """Build on this machine. The imports below run while the first worker starts."""
    from tokenmill.cli.display import display_for, events_for, naming_kept_units
    from tokenmill.cli.summary import BUILD, next_line
    from tokenmill.run.build import build
    from tokenmill.run.build_report import BuildReport

    with (
        naming_kept_units(recipe.out),
        display_for(BUILD, json=options.json) as display,
        _telling_of_compilation(recipe, display.compiling),
    ):
        report = build(
            recipe,
            overwrite=options.overwrite,
            events=events_for(display),
            executor=executor,
            shard=shard,
        )
        if isinstance(report, BuildReport):
            display.finish(report)
            _export(recipe, report, options)
            if not options.json:
                print(f"\n{next_line(report.out)}")
        else:
            display.leave(report.out)
    return 0


def _telling_of_compilation(
    recipe: Recipe, tell: Callable[[], None]
) -> contextlib.AbstractContextManager[None]:
    """Call `tell` once if the plan of a build must be compiled first, which takes seconds."""
    if recipe.pack.sequence_length is None:
        return contextlib.nullcontext()  # no plan, so numba need not be imported
    from tokenmill.kernels.compiled import telling_of_compilation

    return telling_of_compilation(tell)


def _export(recipe: Recipe, report: BuildReport, options: argparse.Namespace) -> None:
    """Write the rows that the recipe asks for."""
    if recipe.export is UNSET:
        return
    from tokenmill.api.exporting import export_plans
    from tokenmill.cli.export_display import export_lines
    from tokenmill.cli.meter import meter

    with meter() as advance:
        replaced = bool(options.overwrite)
        exports = export_plans(recipe, report, overwrite=replaced, advance=advance)
    for each in exports:
        if options.json:
            values = {"event": "exported", "folder": str(each.folder), **asdict(each.manifest)}
            print(msgspec.json.encode(values).decode(), flush=True)
        else:
            note = "; nothing to do: the export is complete" if each.already_there else ""
            print(
                "\n".join(["", f"rows: {safe_text(str(each.folder))}{note}", *export_lines(each)])
            )


def _launch(recipe: Recipe, options: argparse.Namespace) -> int:
    """Hand the build to the launcher of a cluster."""
    from tokenmill.run.launch.launcher import LaunchRequest, launcher_for

    if options.overwrite:
        raise UserError(
            "--overwrite cannot be combined with --on",
            why="agents would remove each other's work",
            hint="build into a new folder",
        )
    _refuse_export(recipe, "--on")
    if options.shard is not None:
        raise UserError("--shard cannot be combined with --on, which gives each agent its shard")
    for name in ("agents", "cpus_per_agent"):
        if (given := getattr(options, name)) is not None and given < 1:
            raise UserError(f"{_flag(name)} must be at least 1, got {given}")
    for name, launcher in LAUNCHER_OF.items():
        if getattr(options, name) is not None and options.on.partition("://")[0] != launcher:
            raise UserError(f"{_flag(name)} can only be used with --on {launcher}")
    request = LaunchRequest(
        recipe=recipe,
        command=tuple(_without(CLUSTER_OPTIONS, options.command_line)),
        num_agents=options.agents,
        options={name: getattr(options, name) for name in CLUSTER_OPTIONS},
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    launcher_for(options.on).launch(options.on, request)
    return 0


def _refuse_export(recipe: Recipe, flag: str) -> None:
    """Raise a UserError if a build by several agents is to export rows."""
    if recipe.export is not UNSET:
        raise UserError(
            f"an export cannot be combined with {flag}",
            why="agents build the dataset and its plan, but one process must write the rows",
            hint=f"leave it out now; afterwards, run the same command with it and without {flag}",
        )


def _without(names: Collection[str], words: Sequence[str]) -> Iterator[str]:
    """A command line without some options that take a value."""
    flags = {_flag(name) for name in names}
    remaining = iter(words)
    for word in remaining:
        if word in flags:
            next(remaining, None)
        elif word.partition("=")[0] not in flags:
            yield word
        if word == "--":
            yield from remaining


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
