"""The Slurm cluster that all tests of one run share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from slurm_lab import SlurmLab, slurm_lab, why_not


@pytest.fixture(scope="session")
def _slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmLab]:
    if reason := why_not():
        pytest.skip(reason)
    with slurm_lab(tmp_path_factory.mktemp("slurm") / "lab") as lab:
        yield lab


@pytest.fixture
def slurm(_slurm: SlurmLab, monkeypatch: pytest.MonkeyPatch) -> SlurmLab:
    """A cluster whose three nodes are idle, which the command line finds in the environment."""
    _slurm.make_idle()
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, _slurm.environment[name])
    return _slurm
