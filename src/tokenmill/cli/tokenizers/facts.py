"""tokenmill tokenizer show, fingerprint, diff"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, ClassVar

from tokenmill.cli.parser import Command, Json
from tokenmill.cli.tables import print_facts, print_json
from tokenmill.core.options import about
from tokenmill.run.recipe.options import EncodingName, SpecialsFile, SplitPattern

if TYPE_CHECKING:
    from tokenmill.encode.encodings import RankEncoding
    from tokenmill.encode.fingerprint import Fingerprint
    from tokenmill.reports.tokenizers.difference import Difference
    from tokenmill.reports.tokenizers.facts import TokenizerFacts

DIFFERENT = 5
MAX_SHOWN_TOKENS = 12
SHOWN_DIGITS = 16
"""Digits shown of the digest of a component; `--json` has all."""
WHICH = (
    "tokenizer.json, its folder, .tiktoken, .model, Hub name, python:MODULE:NAME, or the folder of "
    "a dataset"
)


class RankFile(Command, kw_only=True):
    """A command with options that describe an unknown rank file."""

    encoding: EncodingName = ""
    pattern: SplitPattern = None
    specials_from: SpecialsFile = None

    @property
    def rank_encoding(self) -> str | RankEncoding:
        """The encoding that these options name.

        Raises:
            UserError: the options contradict each other.
        """
        from tokenmill.encode.encodings import chosen_encoding

        return chosen_encoding(self.encoding, self.pattern, self.specials_from)


class _OneTokenizer(RankFile, kw_only=True):
    """A command about a tokenizer."""

    usage: ClassVar[str] = "TOKENIZER [options]"

    tokenizer: Annotated[str, about(WHICH, positional="TOKENIZER")]
    json: Json = False


class ShowFingerprint(_OneTokenizer, kw_only=True):
    """Print the fingerprint of a tokenizer."""

    def run(self) -> None:
        found = _fingerprint(self.tokenizer, self.rank_encoding)
        if self.json:
            print_json({"fingerprint": found.value, "components": found.digests})
        else:
            print(found.value)


class Show(_OneTokenizer, kw_only=True):
    """Print the facts of a tokenizer."""

    def run(self) -> None:
        from tokenmill.reports.tokenizers.facts import describe_tokenizer

        facts = describe_tokenizer(self.tokenizer, self.rank_encoding)
        if self.json:
            print_json(facts)
        else:
            print_facts(list(_facts(facts)))


class Diff(_OneTokenizer, kw_only=True):
    """Compare two tokenizers."""

    usage: ClassVar[str] = "TOKENIZER OTHER [options]"

    other: Annotated[str, about(WHICH, positional="OTHER")]

    def run(self) -> int:
        from tokenmill.reports.tokenizers.difference import compare_tokenizers

        ours = _fingerprint(self.tokenizer, self.rank_encoding)
        theirs = _fingerprint(self.other, self.rank_encoding)
        differences = compare_tokenizers(ours, theirs)
        if self.json:
            fingerprints = [ours.value, theirs.value]
            equal = not differences
            print_json({"equal": equal, "fingerprints": fingerprints, "differences": differences})
        else:
            _print_differences(differences, ours, theirs)
        return DIFFERENT if differences else 0


def _fingerprint(tokenizer: str, encoding: str | RankEncoding) -> Fingerprint:
    from tokenmill.encode.fingerprint import fingerprint_of
    from tokenmill.reports.tokenizers.subject import open_tokenizer

    return fingerprint_of(open_tokenizer(tokenizer, encoding))


def _print_differences(
    differences: list[Difference], ours: Fingerprint, theirs: Fingerprint
) -> None:
    found = {difference.component: difference for difference in differences}
    if "kind" in found:
        print_facts([("kind", f"{ours.kind} -> {theirs.kind}: components cannot be compared")])
        return
    facts = []
    for name in dict.fromkeys([*found, *ours.digests, *theirs.digests]):
        text = "equal"
        if each := found.get(name):
            text = f"{each.added:,} added, {each.removed:,} removed, {each.changed:,} changed"
        facts += [(name, text), *(("", example) for example in (each.examples if each else ()))]
    print_facts(facts)


def _facts(facts: TokenizerFacts) -> Iterator[tuple[str, str]]:
    yield "tokenizer", f"{facts.origin} ({facts.kind})"
    if facts.encodings:
        name, *others = facts.encodings
        same = f"; {', '.join(others)} would fit the ranks as well" if others else ""
        yield "encoding", name + same
    options = (f"{k} {v}" for k, v in facts.model.items() if k != "type" and v not in (None, False))
    yield "model", ", ".join([str(facts.model["type"]), *options])
    tokens = "" if facts.num_tokens is None else f"{facts.num_tokens:,} tokens, "
    yield "vocabulary", f"{tokens}largest id {facts.largest_id:,}, shards of {facts.token_dtype}"
    yield "normalizer", ", then ".join(facts.normalizer) or "none"
    yield "pre-tokenizer", ", then ".join(facts.pre_tokenizer) or "none"
    specials = sorted(facts.special_tokens.items(), key=lambda item: item[1])
    shown = ", ".join(f"{content} {i}" for content, i in specials[:MAX_SHOWN_TOKENS])
    more = len(specials) - MAX_SHOWN_TOKENS
    yield "special", (shown or "none") + (f", and {more:,} more" if more > 0 else "")
    yield "beginning", f"ids {facts.prefix_ids}" if facts.prefix_ids else "nothing"
    end = f"id {facts.eos_id}, from {facts.eos_reason}"
    yield "end", facts.eos_reason if facts.eos_id is None else end
    if facts.suffix_ids:
        yield "not written", f"ids {facts.suffix_ids}, which its post-processor adds after a text"
    yield "padding", "not named" if facts.pad_id is None else f"id {facts.pad_id}"
    yield "engine", facts.engines[0]
    for name, why in facts.objections.items():
        yield "not used", f"{name}: {why}"
    yield "fingerprint", facts.fingerprint
    for name, digest in facts.digests.items():
        yield name, f"sha256 {digest[:SHOWN_DIGITS]}..."
