"""tokenmill adopt"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command, Events, Section
from tokenmill.core.options import Overwrite, about, make_options
from tokenmill.core.values import counted, shortened
from tokenmill.read.tokens.options import AdoptOptions
from tokenmill.run.recipe.options import EncodeOptions, TokenizerName

if TYPE_CHECKING:
    from tokenmill.run.adopt.adopting import AdoptReport

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
        from tokenmill.cli.display import Shown, display_for, naming_kept_units
        from tokenmill.cli.tables import next_text
        from tokenmill.run.adopt.adopting import adopt

        options = make_options(AdoptOptions, self.given.get("files", {}), "the command")
        encode = make_options(EncodeOptions, self.given.get("tokenizer", {}), "the command")
        shown: Shown[None, AdoptReport] = Shown(
            counted="tokens",
            lines=lambda report, startup, verbose: _lines(report),
            values=lambda report: {"out": self.out, **_values(report)},
        )
        with naming_kept_units(self.out), display_for(shown, json=self.json) as display:
            report = adopt(
                self.inputs,
                self.tokenizer,
                self.out,
                options,
                encode,
                overwrite=self.overwrite,
                advance=display.advance,
            )
            display.finish(report)
        if not self.json:
            after = (("tokenmill", verb, self.out) for verb in ("verify", "pack"))
            print(f"\n{next_text(*after)}")


def _values(report: AdoptReport) -> dict[str, object]:
    """The summary for JSON."""
    manifest = report.dataset.manifest
    return {
        "dataset_id": manifest.dataset_id,
        "prefix_ids": manifest.tokenizer.prefix_ids,
        "found": report.found,
        "text": report.text,
    }


def _lines(report: AdoptReport) -> list[str]:
    """The summary for people."""
    from tokenmill.cli.tables import fact_lines

    before = ["nothing to do: the dataset is complete"] if report.already_there else []
    return [*before, *fact_lines(_facts(report), 12)]


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
