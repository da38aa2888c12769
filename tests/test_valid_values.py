"""What an option may be, in words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta

from tokenmill import FillInMiddle
from tokenmill.core.errors import UserError
from tokenmill.core.values import valid_values
from tokenmill.load import opening


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "a whole number"),
        (Annotated[int, Meta(ge=1, le=32)], "a whole number, at least 1 and at most 32"),
        (Annotated[int, Meta(ge=1)] | None, "a whole number, at least 1, or none"),
        (Annotated[Annotated[int, Meta(ge=1)] | None, Meta(description="x")],
         "a whole number, at least 1, or none"),
        (Annotated[float, Meta(gt=0, lt=1, description="share, e.g. 0.1%")],
         "a number, above 0 and below 1, e.g. 0.1%"),
        (bool, "true or false"),
        (Literal["a", "b"], "one of a, b"),
        (Literal["a", "b"] | None, "one of a, b, or none"),
        (tuple[Literal["a", "b"], ...], "one or several of a, b"),
        (list[str], "a list of texts"),
        (Annotated[list[str], Meta(min_length=1)], "a list of at least one text"),
        (str | int | None, "text or a whole number, or none"),
        (Path, ""),
        (dict[str, int], ""),
        (FillInMiddle | None, ""),
    ],
)  # fmt: skip
def test_types_in_words(kind: Any, text: str) -> None:
    assert valid_values(kind) == text


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"shuffle": False}, "shuffle: got False; must be one of global, blocks, none"),
        (
            {"shuffle": "alll"},
            "shuffle: got 'alll'; must be one of global, blocks, none",
        ),
        ({"labels": None}, "labels: got None; must be one of aligned, next"),
        (
            {"overlap_in_loss": "yes"},
            "overlap_in_loss: got 'yes'; must be true or false, or none",
        ),
        (
            {"fill_in_middle": {"rate": 2}},
            "fill_in_middle.rate: got 2; must be a number, at least 0 and at most 1",
        ),
    ],
)
def test_loaders_say_what_an_option_may_be(options: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match="the loader has 1 problem") as caught:
        opening.make_options(opening.LOADER_OPTIONS, {"batch_size": 1, **options})
    assert caught.value.why == why
