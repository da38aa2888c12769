"""How files of the Hub are to be read, and what is heard of a download."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

BLOCK_BYTES = 8 << 20
"""What is read at a time. One request takes some 0.1 s, in which a fast line gives as much."""


@dataclass(frozen=True, slots=True)
class DownloadProgress:
    """One moment of a download."""

    done_bytes: int
    """With what was in the cache before."""
    total_bytes: int
    done_files: int
    num_files: int


DownloadListener = Callable[[DownloadProgress], None]


@dataclass(frozen=True, slots=True)
class HubAccess:
    """How files of the Hub are to be read."""

    mode: Literal["download", "stream", "sample"] = "download"
    """Kept in the cache first; read where they are; read where they are if not in the cache."""
    cache_dir: str | None = None
    """None: the folder of the library `huggingface_hub`."""
    listener: DownloadListener = lambda progress: None
