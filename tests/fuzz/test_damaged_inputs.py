"""Damaged inputs and tokenizers are read, or end in typed errors, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz_kit import SOAK_SECONDS, Findings, fuzz, fuzz_for

TARGETS = {"columnar_target": 150, "lines_target": 150, "tokenizers_target": 100}
"""Each with its number of cases in a usual run."""


def require_no_fault(findings: Findings) -> None:
    print(dict(findings.outcomes))
    assert findings.faults == []
    assert findings.outcomes["read"] > 0
    assert findings.outcomes["refused"] > 0


@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_are_read_or_refused(target: str, tmp_path: Path) -> None:
    require_no_fault(fuzz(target, 0, TARGETS[target], tmp_path))


@pytest.mark.soak
@pytest.mark.parametrize("target", TARGETS)
def test_damaged_files_are_read_or_refused_for_minutes(target: str, tmp_path: Path) -> None:
    require_no_fault(fuzz_for(target, SOAK_SECONDS, tmp_path))
