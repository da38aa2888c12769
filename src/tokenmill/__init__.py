"""tokenmill: raw text to training batches.

import tokenmill

report = tokenmill.build("data/", tokenizer="tokenizer.json", out="corpus/")
tokenmill.verify("corpus/")
tokenmill.make_plan("corpus/", sequence_length=4096)
dataset = tokenmill.open("corpus/")
dataset.shards[0].document(0)  # the ids of the first document
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenmill.api import (
        Batches,
        BatchOptions,
        BuildEvents,
        BuildReport,
        Compared,
        Curriculum,
        Dataset,
        DocumentView,
        Estimate,
        ExportManifest,
        Figures,
        MaskedLM,
        MixtureSource,
        OrderOptions,
        Permutation,
        Phase,
        Pieces,
        Plan,
        PlanReport,
        Recipe,
        RowReader,
        Segmentation,
        SegmentOrigin,
        StreamPacker,
        Targets,
        TextStream,
        TextStreamOptions,
        Verification,
        build,
        check_tokenizer,
        compare_plans,
        estimate,
        export_rows,
        load_recipe,
        make_plan,
        make_recipe,
        masks,
        micro_batches,
        mix,
        mix_batches,
        open,
        open_plan,
        recipe,
        shortened,
        text_loader,
        verify,
        view_document,
    )

__all__ = [
    "BatchOptions",
    "Batches",
    "BuildEvents",
    "BuildReport",
    "Compared",
    "Curriculum",
    "Dataset",
    "DocumentView",
    "Estimate",
    "ExportManifest",
    "Figures",
    "MaskedLM",
    "MixtureSource",
    "OrderOptions",
    "Permutation",
    "Phase",
    "Pieces",
    "Plan",
    "PlanReport",
    "Recipe",
    "RowReader",
    "SegmentOrigin",
    "Segmentation",
    "StreamPacker",
    "Targets",
    "TextStream",
    "TextStreamOptions",
    "Verification",
    "build",
    "check_tokenizer",
    "compare_plans",
    "estimate",
    "export_rows",
    "load_recipe",
    "make_plan",
    "make_recipe",
    "masks",
    "micro_batches",
    "mix",
    "mix_batches",
    "open",
    "open_plan",
    "recipe",
    "shortened",
    "text_loader",
    "verify",
    "view_document",
]


def __getattr__(name: str) -> Any:
    """Public names, imported when they are first used: `import tokenmill` itself costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    from tokenmill import api

    return getattr(api, name)


def __dir__() -> list[str]:
    return __all__
