"""Plans of every strategy and policy, and the batches they serve, stay the same for ever.

`golden/plans` holds a corpus of 84 documents and its dataset in six shards. Python and compiled
code make the plans; their ids, arrays and batches are those that were recorded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tokenmill
from tokenmill.kernels import interpreted
from tokenmill.load.batches import Batches
from tokenmill.store.digests import file_digest
from tokenmill.store.plan import ARRAYS, Plan

GOLDEN = Path(__file__).parents[1] / "golden" / "plans"
RECORDED = json.loads((GOLDEN / "recorded.json").read_text())

PLANS: dict[str, dict[str, Any]] = {
    # every strategy
    "best-fit": {},
    "first-fit": {"packing": "first-fit"},
    "next-fit": {"packing": "next-fit", "max_segments": 3},
    "order-preserving": {"packing": "order-preserving", "cut_cost": 20},
    "concat-and-chunk": {"packing": "concat-and-chunk"},
    "shortest-pack-first": {"packing": "shortest-pack-first"},
    "longest-pack-first": {"packing": "longest-pack-first"},
    "optimal": {"packing": "optimal", "window": "global"},
    "length-buckets": {"packing": "length-buckets", "smallest_bucket": 16},
    "balanced": {"packing": "balanced", "ranks": 4, "window_sequences": 8},
    "streaming": {"packing": "streaming", "open_sequences": 5},
    # every policy for long documents
    "split-at-boundary": {"long_documents": "split-at-boundary", "slack": 30},
    "split-at-paragraph": {"long_documents": "split-at-boundary", "split_at": "paragraph"},
    "sliding-window": {"long_documents": "sliding-window", "overlap": 9},
    "keep-start": {"long_documents": "keep-start"},
    "keep-end": {"long_documents": "keep-end", "at_cuts": "bos"},
    "keep-both-ends": {"long_documents": "keep-both-ends", "start_share": 0.25},
    "drop": {"long_documents": "drop"},
    # every rule about rows, and about which documents share one
    "set-at-cuts": {"at_cuts": "bos-and-eos", "segment_multiple": 4},
    "buckets-of-a-multiple": {
        "packing": "length-buckets", "smallest_bucket": 8, "sequence_multiple": 24,
    },
    "multiple": {"sequence_multiple": 48},
    "separated": {"separate_by": "lang", "window_sequences": 8},
    "weighted": {"weight_by": "lang", "weight": ["en=2.5", "de=0.5"], "window_sequences": 8},
    "validation": {"subset": "validation"},
}  # fmt: skip


def made(folder: Path, most_steps: int) -> Callable[[str], Plan]:
    """Makes the plan of a name, once; loops of up to `most_steps` run in Python."""
    dataset = tokenmill.open(GOLDEN / "dataset")

    @cache
    def make(name: str) -> Plan:
        options = {"sequence_length": 64, "subset": "train", **PLANS[name]}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(interpreted, "MOST_STEPS", most_steps)
            return tokenmill.pack(dataset, folder=folder / name, **options).plan

    return make


@pytest.fixture(scope="module")
def plan_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Plan]:
    """Makes the plan of a name, in Python."""
    return made(tmp_path_factory.mktemp("plans"), interpreted.MOST_STEPS)


def test_every_plan_has_its_id_and_its_arrays(plan_of: Callable[[str], Plan]) -> None:
    plans = {name: plan_of(name) for name in PLANS}
    assert {name: described(plan) for name, plan in plans.items()} == RECORDED["plans"]


def test_compiled_code_makes_the_same_plans(tmp_path: Path) -> None:
    plan_of = made(tmp_path, 0)
    assert {name: described(plan_of(name)) for name in PLANS} == RECORDED["plans"]


def described(plan: Plan) -> dict[str, Any]:
    """The identity of a plan, and the digests of its files."""
    return {
        "plan_id": plan.manifest.plan_id,
        "sequences": len(plan),
        "windows": [[each.shards, each.sequences] for each in plan.manifest.windows],
        "arrays": [file_digest(plan.folder / f"{name}.npy") for name in ARRAYS],
    }


COLUMNS = ("input_ids", "labels", "position_ids", "cu_seqlens", "segment_ids", "num_targets")

LOADERS: dict[str, tuple[str, dict[str, Any]]] = {
    "one rank": ("best-fit", {"global_batch_size": 4}),
    "two ranks": ("best-fit", {"global_batch_size": 4, "world_size": 2, "seed": 7}),
    "four ranks, three epochs": (
        "best-fit", {"global_batch_size": 12, "world_size": 4, "epochs": 3},
    ),
    "ranks of neighbours": (
        "best-fit", {"global_batch_size": 8, "world_size": 2, "even_attention": False},
    ),
    "in order": ("next-fit", {"global_batch_size": 4, "shuffle": "none"}),
    "by blocks": ("first-fit", {"global_batch_size": 4, "shuffle": "blocks", "seed": 3}),
    "next labels": ("streaming", {"global_batch_size": 4, "labels": "next"}),
    "across documents": ("optimal", {"global_batch_size": 4, "across_documents": True}),
    "groups that stay together": ("balanced", {"global_batch_size": 8, "epochs": 2, "seed": 1}),
    "groups in order": ("balanced", {"global_batch_size": 4, "shuffle": "none"}),
    "rows of several lengths": ("length-buckets", {"tokens_per_batch": 128, "epochs": 3}),
    "several lengths, two ranks": (
        "buckets-of-a-multiple", {"tokens_per_batch": 144, "world_size": 2, "epochs": 2},
    ),
    "several lengths in order": ("length-buckets", {"tokens_per_batch": 64, "shuffle": "none"}),
    "tokens set at cuts": ("set-at-cuts", {"global_batch_size": 4}),
    "tokens set at cuts, next": ("set-at-cuts", {"global_batch_size": 4, "labels": "next"}),
    "windows that overlap": ("sliding-window", {"global_batch_size": 4}),
    "overlap in the loss": ("sliding-window", {"global_batch_size": 4, "overlap_in_loss": True}),
    "ends of documents": ("keep-end", {"global_batch_size": 4}),
    "both ends": ("keep-both-ends", {"global_batch_size": 4}),
    "rows of a multiple": ("multiple", {"tokens_per_batch": 384}),
    "documents that repeat": ("weighted", {"global_batch_size": 6, "rank": 0, "world_size": 3}),
    "kinds apart": ("separated", {"global_batch_size": 4}),
    "cut by order-preserving": ("order-preserving", {"global_batch_size": 4}),
    "cut by concat-and-chunk": ("concat-and-chunk", {"global_batch_size": 4}),
}  # fmt: skip


def test_every_loader_serves_the_batches_that_were_recorded(
    plan_of: Callable[[str], Plan],
) -> None:
    dataset = tokenmill.open(GOLDEN / "dataset")
    served = {
        name: digests(partial(dataset.batches, plan_of(plan), **{"world_size": 1} | options))
        for name, (plan, options) in LOADERS.items()
    }
    assert served == RECORDED["loaders"]


def test_every_curriculum_serves_the_batches_that_were_recorded(
    plan_of: Callable[[str], Plan],
) -> None:
    dataset = tokenmill.open(GOLDEN / "dataset")
    phases = {
        "by length": ("best-fit", (tokenmill.Phase(by="length", bands=5),)),
        "by a column": ("first-fit", (tokenmill.Phase(by="grade", descending=True),)),
        "groups by depth": ("balanced", (tokenmill.Phase(by="depth", bands=3),)),
        "changing rows": (
            "best-fit",
            (tokenmill.Phase(row_length=16), tokenmill.Phase(first_step=2, by="length")),
        ),
    }
    served = {}
    for name, (plan_name, rules) in phases.items():
        plan = plan_of(plan_name)
        curriculum = tokenmill.Curriculum.of_plan(plan, dataset, 4, rules, seed=5)
        served[name] = digests(
            partial(dataset.batches, plan, curriculum=curriculum, rank=0, world_size=2)
        )
    assert served == RECORDED["curricula"]


def test_every_mixture_serves_the_batches_that_were_recorded(
    plan_of: Callable[[str], Plan],
) -> None:
    dataset = tokenmill.open(GOLDEN / "dataset")
    names = ("best-fit", "balanced", "weighted")
    first, second, third = (
        tokenmill.MixtureSource(dataset=dataset, plan=plan_of(name), share=share, epochs=epochs)
        for name, share, epochs in zip(
            names, (0.5, ((0, 0.1), (8, 0.4)), 0.2), (None, 2, 1), strict=True
        )
    )
    mixtures: dict[str, tuple[list[Any], dict[str, Any]]] = {
        "until one ends": ([first, second], {"global_batch_size": 8}),
        "to the end of both": (
            [second, third],
            {
                "global_batch_size": 12,
                "rank": 0,
                "world_size": 3,
                "when_one_ends": "go on",
                "seed": 9,
            },
        ),
    }
    served = {
        name: digests(partial(tokenmill.mix_batches, sources, **{"world_size": 1} | options))
        for name, (sources, options) in mixtures.items()
    }
    assert served == RECORDED["mixtures"]


def digests(open_batches: Callable[..., Batches]) -> dict[str, Any]:
    """How many steps there are, and the digests of all columns of all ranks, step by step."""
    ranks = [open_batches(columns=COLUMNS, rank=0)]
    for rank in range(1, ranks[0].world_size):
        ranks.append(open_batches(columns=COLUMNS, rank=rank))
    steps = []
    while ranks[0].global_batch(len(steps)) is not None:
        parts = [batches.batch(len(steps)) for batches in ranks]
        steps.append(_digest([part[name] for part in parts for name in COLUMNS]))
    audit = [ranks[0].digest(step)[:16] for step in (0, len(steps) - 1)]
    return {"count": len(steps), "steps": steps, "audit": audit}


def _digest(arrays: list[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(str(np.shape(array)).encode())
        digest.update(np.asarray(array).astype("<i8").tobytes())
    return digest.hexdigest()[:12]
