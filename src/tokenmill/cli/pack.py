"""tokenmill pack"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command, Section, Verbose, flag_of
from tokenmill.core.options import about
from tokenmill.packing.options import PackOptions

if TYPE_CHECKING:
    from tokenmill.packing.rest import Rest
    from tokenmill.store.dataset import Dataset


class Pack(Command, kw_only=True):
    """Plan sequences, or compare plans."""

    usage: ClassVar[str] = "DIR --sequence-length N [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill pack corpus/ --sequence-length 4096
  tokenmill pack corpus/ --sequence-length 8192 --packing next-fit --long-documents drop
  tokenmill pack corpus/ --sequence-length 4096 --compare
  tokenmill pack corpus/ --sequence-length 8192 --rest-of state.json"""
    common: ClassVar[tuple[str, ...]] = (
        *("sequence_length", "packing", "long_documents", "max_segments", "subset", "name"),
        *("plan_out", "overwrite", "compare", "rest_of", "verbose"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section("plan", PackOptions, "limits, cuts, windows, weights"),
    )

    dataset: Annotated[str, about("folder of the dataset", positional="DIR")]
    name: Annotated[
        str | None,
        about("name of the plan (default: strategy, length and subset)"),
    ] = None
    plan_out: Annotated[
        str | None,
        about("folder for the plan, outside the dataset", metavar="DIR"),
    ] = None
    overwrite: Annotated[bool, about("replace an existing plan")] = False
    compare: Annotated[bool, about("compare all strategies; writes nothing")] = False
    rest_of: Annotated[
        str | None,
        about(
            "plan what the epoch of a loader's state has not given yet; the state as JSON",
            metavar="STATE",
        ),
    ] = None
    source: Annotated[
        str | None,
        about("--rest-of: a source of a mixture, by its name, its number or its plan"),
    ] = None
    rest_dataset: Annotated[
        list[str],
        about("--rest-of: a dataset of the run that is no longer where it was", metavar="DIR"),
    ] = []
    verbose: Verbose = False
    json: Annotated[bool, about("figures as JSON on stdout")] = False

    def run(self) -> None:
        from tokenmill.core.errors import UserError
        from tokenmill.run.recipe.checks import make_pack_options
        from tokenmill.store.temporary import dataset_at

        chosen = make_pack_options(self.given.get("plan", {}), to_compare=self.compare)
        if self.name is not None and self.plan_out:
            raise UserError("--name and --plan-out cannot be combined")
        if self.rest_of is None and (self.source is not None or self.rest_dataset):
            raise UserError("--source and --rest-dataset need --rest-of")
        with dataset_at(self.dataset) as dataset:
            rest = self._rest(dataset)
            if self.compare:
                self._compare(dataset, chosen, rest)
            else:
                self._pack(dataset, chosen, rest)

    def _rest(self, dataset: Dataset) -> Rest | None:
        if self.rest_of is None:
            return None
        from tokenmill.load.rest import rest_of

        return rest_of(dataset, self.rest_of, source=self.source, datasets=self.rest_dataset)

    def _pack(self, dataset: Dataset, chosen: PackOptions, rest: Rest | None) -> None:
        from tokenmill.cli.meter import planning_meter
        from tokenmill.cli.plan_display import plan_lines, plan_values
        from tokenmill.cli.tables import next_text, print_json
        from tokenmill.packing.planning import named_plan_folder, pack, place_of

        named = None if self.name is None else named_plan_folder(dataset, self.name)
        folder = named or self.plan_out or None
        with planning_meter() as advance:
            report = pack(
                dataset, chosen, folder, rest=rest, overwrite=self.overwrite, advance=advance
            )
        place = "" if dataset.origin is None else place_of(report.plan, dataset)
        if self.json:
            print_json(plan_values(report, place))
            return
        if report.already_there:
            print("nothing to do: the plan is complete")
        print("\n".join(plan_lines(report, place, verbose=self.verbose)))
        folder = report.plan.folder
        name = folder.name if folder.parent == dataset.folder / "plans" else str(folder)
        command = ("tokenmill", "inspect", self.dataset, "--plan", name)
        print(f"\n{next_text(command)}")

    def _compare(self, dataset: Dataset, chosen: PackOptions, rest: Rest | None) -> None:
        from tokenmill.cli.meter import planning_meter
        from tokenmill.cli.plan_display import comparison_lines
        from tokenmill.cli.tables import print_json
        from tokenmill.packing.comparison import compare

        with planning_meter() as advance:
            rows = compare(dataset, chosen, advance, flag_of, rest=rest)
        if self.json:
            print_json(rows)
        else:
            print("\n".join(comparison_lines(rows, chosen.ranks)))
