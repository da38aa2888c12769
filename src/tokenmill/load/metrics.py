"""The metrics of a loader: the figures of `stats()`, for the file that `metrics=` names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from tokenmill.load.stats import Meter
from tokenmill.store.open_metrics import Family, MetricsFile

Stats = dict[str, float]
_KINDS: dict[str, tuple[str, Literal["counter", "gauge"], str]] = {
    "step": ("step", "gauge", "The next step of the run."),
    "epoch": ("epoch", "gauge", "Passes over the data so far."),
    "steps": ("steps", "counter", "Batches taken."),
    "samples": ("samples", "counter", "Rows taken."),
    "padding": ("padding_tokens", "counter", "Padding taken."),
    "padding_share": ("padding_ratio", "gauge", "Share of padding."),
    "wait_seconds": ("wait_seconds", "counter", "Time that training waited for batches."),
    "wait_share": ("wait_ratio", "gauge", "Share of the wait in the last steps."),
    "bytes_fetched": ("fetched_bytes", "counter", "Bytes downloaded from buckets."),
}
"""Name, type and meaning of the metrics, by their keys in `stats()`."""


def keep_metrics(
    meter: Meter, stats: Callable[[], Stats], path: str | Path | None, rank: int, world_size: int
) -> None:
    """Write a file of metrics now, every few seconds while batches are taken, and after the last.

    Args:
        meter: what counts the batches that are taken.
        stats: returns the figures.
        path: the file; None writes none.
        rank: the rank of this process. Each of several ranks has its own file.
        world_size: the number of ranks.

    Raises:
        UserError: the path is a URL or a folder.
    """
    if path is None:
        return
    share = ("rank", rank) if world_size > 1 else None
    file = MetricsFile(path, "tokenmill_loader", lambda: _families(stats()), share)
    meter.on_batch, meter.on_end = file.offer, file.write
    file.offer()


def _families(stats: Stats) -> list[Family]:
    families = [Family(*kind, stats[key]) for key, kind in _KINDS.items() if key in stats]
    of_sources, epochs = _by_source(stats, "tokens/"), _by_source(stats, "epochs/")
    label, tokens = ("source", of_sources) if of_sources else ("", stats["tokens"])
    return [
        *families,
        Family("tokens", "counter", "Tokens taken, without padding.", tokens, label),
        Family("source_epochs", "gauge", "Passes over each source.", epochs, "source"),
    ]


def _by_source(stats: Stats, prefix: str) -> Stats:
    return {key.removeprefix(prefix): n for key, n in stats.items() if key.startswith(prefix)}
