"""Versions of installed packages, and the command that installs more of tokenmill."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tokenmill.core.installed import install_command, installed_version


def test_a_version_is_that_of_the_installed_package() -> None:
    assert installed_version("numpy") == importlib.metadata.version("numpy")
    with pytest.raises(ModuleNotFoundError, match="never-installed"):
        installed_version("never-installed")


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, "pip install 'tokenmill[hf]'"),
        ("no JSON", "pip install 'tokenmill[hf]'"),
        (
            '{"url": "https://host/tokenmill.git", "vcs_info": {"vcs": "git"}}',
            "pip install 'tokenmill[hf]'",
        ),
        ('{"url": "file:///home/a%20b/mill", "dir_info": {}}', "pip install '/home/a b/mill[hf]'"),
        (
            '{"url": "file:///mill", "dir_info": {"editable": true}}',
            "pip install -e '/mill[hf]'",
        ),
    ],
)
def test_an_extra_is_installed_from_where_tokenmill_came_from(
    origin: str | None, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = tmp_path / "tokenmill-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: tokenmill\nVersion: 1\n")
    if origin is not None:
        (info / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("hf") == command
