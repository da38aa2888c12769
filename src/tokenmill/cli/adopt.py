"""tokenmill adopt"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.display import JSON_SECONDS, naming_kept_units
from tokenmill.cli.parser import Command, Events, Section
from tokenmill.core.options import Overwrite, about, make_options
from tokenmill.core.records import Advance
from tokenmill.core.values import counted, shortened
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.run.recipe.options import EncodeOptions, TokenizerName

if TYPE_CHECKING:
    from tokenmill.run.adopt.finishing import AdoptReport

TOKENIZER_OPTIONS = ("encoding", "pattern", "specials_from", "eos", "pad")
MOST_SHOWN = 80


class Adopt(Command, kw_only=True):
    """Adopt token files, showing progress."""

    usage: ClassVar[str] = "INPUT ... --tokenizer TOKENIZER --out DIR [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill adopt data/text_document.bin --tokenizer tokenizer.json --out corpus/
  tokenmill adopt train.bin --tokenizer gpt2/ --out corpus/             # nanoGPT
  tokenmill adopt saved/ --tokenizer tokenizer.json --out corpus/ --append-eos
  tokenmill adopt blocks.parquet --tokenizer tokenizer.json --out corpus/ --boundaries eos"""
    common: ClassVar[tuple[str, ...]] = (
        *("tokenizer", "out", "boundaries", "append_eos", "eos", "overwrite"),
    )
    sections: ClassVar[tuple[Section, ...]] = (
        Section("files", AdoptOptions, "where documents end, and how files are read"),
        Section(
            "tokenizer", EncodeOptions, "the token that ends documents", only=TOKENIZER_OPTIONS
        ),
    )

    inputs: Annotated[
        list[str],
        about(
            "Megatron's pairs or their prefixes, .npy of OLMo, .ds of datatrove, .bin of nanoGPT, "
            "Parquet, Arrow, folders of datasets.save_to_disk",
            positional="INPUT",
        ),
    ]
    tokenizer: TokenizerName
    out: Annotated[str, about("folder for the dataset", example="corpus/", metavar="DIR")]
    overwrite: Annotated[
        Overwrite, about("replace a dataset; =first deletes the old one first")
    ] = False
    json: Events = False

    def run(self) -> None:
        from tokenmill.cli.tables import fact_lines, next_text, print_json
        from tokenmill.run.adopt.adopting import adopt

        options = make_options(AdoptOptions, self.given.get("files", {}), "the command")
        encode = make_options(EncodeOptions, self.given.get("tokenizer", {}), "the command")
        with naming_kept_units(self.out), _telling(json=self.json) as advance:
            report = adopt(
                self.inputs,
                self.tokenizer,
                self.out,
                options,
                encode,
                overwrite=self.overwrite,
                advance=advance,
            )
        manifest = report.dataset.manifest
        if self.json:
            values = {
                "event": "finished",
                "out": self.out,
                "dataset_id": manifest.dataset_id,
                "prefix_ids": manifest.tokenizer.prefix_ids,
                "found": report.found,
                "text": report.text,
            }
            print_json(values)
            return
        if report.already_there:
            print("nothing to do: the dataset is complete")
        print("\n".join(fact_lines(_facts(report), 12)))
        print(f"\n{next_text(('tokenmill', 'verify', self.out), ('tokenmill', 'pack', self.out))}")


@contextmanager
def _telling(*, json: bool) -> Iterator[Advance]:
    """Yield a callback that shows progress: a line for people, or events."""
    from tokenmill.cli.meter import meter
    from tokenmill.cli.tables import print_json

    if not json:
        with meter() as advance:
            yield advance
        return
    told_at = -JSON_SECONDS

    def tell(stage: str, done: int, total: int) -> None:
        nonlocal told_at
        if time.monotonic() - told_at >= JSON_SECONDS:
            told_at = time.monotonic()
            print_json({"event": stage, "done": done, "total": total})

    yield tell


def _facts(report: AdoptReport) -> Iterator[tuple[str, str]]:
    """What the dataset holds, and what was found in the files."""
    manifest, found = report.dataset.manifest, report.found
    tokenizer, num_files = manifest.tokenizer, len(manifest.sources)
    yield "documents", f"{found.documents:,} of {counted(num_files, 'file')}"
    yield "tokens", f"{found.tokens:,} in {report.dataset.folder} (id {manifest.dataset_id})"
    written = num_files - found.shared
    yield "files", f"{found.shared:,} share their bytes, {written:,} written anew"
    begins = f"begin with {tokenizer.prefix_ids or 'nothing'}, end with {tokenizer.eos_id}"
    yield "boundaries", f"{begins}: {report.eos_reason}"
    remarks = {
        "no tokens, left out": found.empty,
        "got an EOS": found.appended,
        "only an EOS": found.bare,
        "several EOS at the end, perhaps padding": found.repeated,
    }
    for text, number in remarks.items():
        if number:
            yield "found", f"{counted(number, 'document')}: {text}"
    if found.special:
        yield "found", f"{counted(found.special, 'special token')} inside documents"
    if found.unknown:
        yield "found", counted(found.unknown, "unknown token")
    if found.left_out:
        yield "left out", ", ".join(found.left_out)
    if report.text:
        yield "begins", shortened(repr(report.text), MOST_SHOWN)
