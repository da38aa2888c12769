"""Damaged Parquet and Arrow files become documents or typed errors, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_kit import Findings, fuzz, fuzz_for

SECONDS = 600
TARGET = "columnar_target"


def require_no_fault(findings: Findings) -> None:
    print(dict(findings.outcomes))
    assert findings.faults == []
    assert findings.outcomes["read"] > 0
    assert findings.outcomes["refused"] > 0


def test_damaged_files_are_read_or_refused(tmp_path: Path) -> None:
    require_no_fault(fuzz(TARGET, 0, 150, tmp_path))


@pytest.mark.soak
def test_damaged_files_are_read_or_refused_for_ten_minutes(tmp_path: Path) -> None:
    require_no_fault(fuzz_for(TARGET, SECONDS, tmp_path))
