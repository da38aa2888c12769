"""The files that `datasets.load_from_disk` needs in addition to a folder of Arrow files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

STATE_NAME = "state.json"
INFO_NAME = "dataset_info.json"


def state_of(names: Sequence[str], fingerprint: str, split: str | None = None) -> bytes:
    """Return the content of `state.json` for the Arrow files `names`, in that order."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": fingerprint,
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": split,
    }
    return msgspec.json.encode(state)
