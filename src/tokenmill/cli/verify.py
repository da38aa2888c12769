"""tokenmill verify"""

from __future__ import annotations

from typing import Annotated, ClassVar

from msgspec import Meta

from tokenmill.cli.parser import Command, Decoder, Json
from tokenmill.core.options import about
from tokenmill.core.values import counted

Portion = Annotated[float, Meta(gt=0, le=1)]


class Verify(Command, kw_only=True):
    """Verify a dataset, showing progress."""

    usage: ClassVar[str] = "DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill verify corpus/                     every byte
  tokenmill verify corpus/ --sample 5%         some blocks of every shard
  tokenmill verify corpus/ --against-sources   encode the sources again and compare
  tokenmill verify corpus/ --shard 0/8         the first of eight parts, for eight machines
  tokenmill verify view/                       a view and its datasets
  tokenmill verify rows/                       an export: compare it with its dataset"""

    folder: Annotated[str, about("folder of the dataset, view or export", positional="DIR")]
    sample: Annotated[
        Portion | None,
        about("share of token blocks, documents or rows to check, e.g. 5% (default: 100%)"),
    ] = None
    against_sources: Annotated[bool, about("also encode the sources again and compare")] = False
    plan: Annotated[
        list[str],
        about("also check a plan outside the dataset", metavar="DIR"),
    ] = []
    shard: Annotated[
        str,
        about(
            "check part I of N, counted from 0; auto: use the task number of Slurm or Kubernetes",
            metavar="I/N",
        ),
    ] = ""
    dataset: Annotated[
        str | None, about("the dataset of an export, if either has moved", metavar="DIR")
    ] = None
    tokenizer: Decoder = None
    transform: Annotated[
        str | None,
        about(
            "the function that built the texts, needed by --against-sources",
            metavar="python:MODULE:NAME",
        ),
    ] = None
    json: Json = False

    def run(self) -> None:
        from tokenmill.cli.meter import meter
        from tokenmill.cli.tables import print_json
        from tokenmill.cli.terminal import fitted
        from tokenmill.reports.verify import verify

        sample = 1.0 if self.sample is None else self.sample
        with meter() as advance:
            result = verify(
                self.folder,
                sample=sample,
                against_sources=self.against_sources,
                plans=self.plan,
                tokenizer=self.tokenizer,
                transform=self.transform,
                shard=self.shard,
                dataset=self.dataset,
                advance=advance,
            )
        if self.json:
            names = [*("files", "bytes", "documents", "tokens", "plans")]
            names += ["compared_documents", "decoded_documents"]
            part = {"shard": result.shard} if result.shard else {}
            counts = {name: getattr(result, name) for name in names}
            names = [parent.dataset.location for parent in result.parents]
            parents: dict[str, object] = {"parents": names} if names else {}
            if result.is_export:
                parents = {"rows": result.rows, "dataset": result.dataset.location}
            print_json({"verified": True, "sample": sample, **part, **counts, **parents})
            return
        parts = [
            counted(result.files, "file"),
            counted(result.rows, "row") if result.rows else counted(result.documents, "document"),
            counted(result.tokens, "token"),
        ]
        if result.plans:
            parts.append(counted(result.plans, "plan"))
        if self.against_sources:
            parts.append(f"{result.compared_documents:,} compared with their sources")
        if not (result.decoded_documents or result.shard or result.is_export):
            parts.append("not decoded (give --tokenizer with a decode method)")
        part_name = f" shard {result.shard}" if result.shard else ""
        of = "each file" if result.is_export else "the blocks"
        share = f" ({sample:.3g} of {of})" if sample < 1 else ""
        print(fitted(f"verified{part_name}: {', '.join(parts)}{share}"))
        if result.is_export:
            print(fitted(f"equal to {result.dataset.location}"))
        for parent in result.parents:
            what = counted(parent.documents, "document")
            print(fitted(f"with its dataset {parent.dataset.location}: {what}"))
