"""A folder that loses answers as NFS does, through FUSE; skipped by name where there is none."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def lossy_mount(folder: Path, probability: float) -> Iterator[Path]:
    """Mount a folder below `folder` whose link() and rename() lose that part of their answers."""
    if importlib.util.find_spec("fuse") is None or not shutil.which("fusermount3"):
        pytest.skip("FUSE is not installed: `make cluster` gets it from apt and PyPI")
    root, mount = folder / "root", folder / "mount"
    root.mkdir()
    mount.mkdir()
    script = Path(__file__).with_name("nfs_mount.py")
    command = [sys.executable, "-W", "ignore", str(script), str(root), str(mount), str(probability)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            while not mount.is_mount():
                if server.poll() is not None:
                    assert server.stderr is not None
                    pytest.skip(f"FUSE may not be used here: {server.stderr.read().strip()[-200:]}")
                time.sleep(0.02)
            yield mount
        finally:
            subprocess.run(["fusermount3", "-u", "-z", str(mount)], capture_output=True)
            server.terminate()
