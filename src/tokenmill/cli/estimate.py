"""tokenmill estimate"""

from __future__ import annotations

from typing import ClassVar

from tokenmill.cli.parser import Json
from tokenmill.cli.recipe_command import RecipeCommand


class Estimate(RecipeCommand, kw_only=True):
    """Print the estimate of a build."""

    usage: ClassVar[str] = "INPUT ... --tokenizer TOKENIZER [options]"
    examples: ClassVar[str] = """\
examples:
  tokenmill estimate data/ --tokenizer tokenizer.json"""

    json: Json = False

    def run(self) -> None:
        recipe = self.recipe(out="(not written)")
        from tokenmill.cli.tables import fact_lines, print_json
        from tokenmill.core.values import counted, duration_text, size_text
        from tokenmill.reports.estimate import estimate

        found = estimate(recipe)
        if self.json:
            print_json(found)
            return
        facts = {
            "inputs": f"{counted(found.files, 'file')}, {size_text(found.input_bytes)}, "
            f"about {size_text(found.decompressed_bytes)} decompressed",
            "documents": interval_text(found.documents, found.documents_interval),
            "tokens": interval_text(found.tokens, found.tokens_interval),
            "on disk": f"about {size_text(found.disk_bytes)} in {counted(found.shards, 'shard')}",
            "time": f"about {duration_text(found.seconds)} with "
            f"{counted(found.num_workers, 'worker')} ({found.engine})",
            "memory": f"up to {size_text(found.memory_bytes)}",
            "sample": f"{counted(found.sample_documents, 'document')}, "
            f"{size_text(found.sample_bytes)}, {found.sample_rejected} rejected",
        }
        if found.sample_damaged:
            damaged = counted(found.sample_damaged, "file")
            facts["sample"] += f"; {damaged} damaged, counted as empty"
        print("\n".join(fact_lines(facts.items(), 10)))


def interval_text(value: int, interval: tuple[int, int]) -> str:
    """A number with the interval in which it is: 409 M (396 to 421 M)."""
    units = ((1_000_000_000, " G"), (1_000_000, " M"), (1000, " k"), (1, ""))
    size, unit = next((entry for entry in units if value >= 10 * entry[0]), units[-1])
    digits = 1 if size > 1 and value < 100 * size else 0
    texts = [f"{number / size:,.{digits}f}" for number in (value, *interval)]
    if interval == (value, value):
        return f"{value:,}"
    return f"{texts[0]}{unit} ({texts[1]} to {texts[2]}{unit})"
