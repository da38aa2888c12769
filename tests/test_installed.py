"""Versions of installed packages, read from their folders."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from tokenmill.core.installed import install_command, installed_version


def _install(site: Path, folder: str, metadata: str) -> None:
    (site / folder).mkdir(parents=True)
    (site / folder / "METADATA").write_text(metadata)


def test_every_installed_package_has_the_version_that_importlib_finds() -> None:
    names = {distribution.metadata["Name"] for distribution in importlib.metadata.distributions()}
    found = {name: installed_version(name) for name in names}
    assert found == {name: importlib.metadata.version(name) for name in names}


def test_the_version_is_that_of_the_file_and_not_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(
        tmp_path, "some_thing-1.0.dist-info", "Name: some.thing\nVersion: 1.0-rc1\n\nVersion: 2"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert [installed_version(name) for name in ("some.thing", "Some-Thing")] == ["1.0-rc1"] * 2


def test_the_first_on_the_path_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _install(tmp_path / "b", "thing-2.dist-info", "Version: 2\n")
    _install(tmp_path / "a", "thing-1.dist-info", "Version: 1\n")
    monkeypatch.syspath_prepend(str(tmp_path / "b"))
    monkeypatch.syspath_prepend(str(tmp_path / "a"))
    assert installed_version("thing") == "1"


def test_an_old_egg_is_left_to_importlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old_thing-3.egg-info").mkdir()
    (tmp_path / "old_thing-3.egg-info" / "PKG-INFO").write_text("Version: 3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert installed_version("old-thing") == "3"


def test_a_package_that_is_not_installed_is_not_found() -> None:
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
    _install(tmp_path, "tokenmill-1.dist-info", "Name: tokenmill\nVersion: 1\n")
    if origin is not None:
        (tmp_path / "tokenmill-1.dist-info" / "direct_url.json").write_text(origin)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert install_command("hf") == command
