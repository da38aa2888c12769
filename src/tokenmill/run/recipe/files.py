"""Read recipes from YAML files, and override single options."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, read_bounded

MAX_RECIPE_BYTES = 1 << 24


def load_recipe(path: str | Path, what: str = "the recipe") -> dict[str, Any]:
    """Read the options in a YAML file, without checking them.

    Args:
        path: the file.
        what: the name of the file's contents in errors.

    Raises:
        UserError: the file cannot be read, or does not hold a YAML mapping.
    """
    import yaml

    try:
        data = read_bounded(local_path(path, what), MAX_RECIPE_BYTES, what)
        options = yaml.safe_load(data.decode())
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise UserError(f"cannot read {what}", where=str(path), why=str(error)) from error
    if not isinstance(options, dict) or not all(isinstance(key, str) for key in options):
        why = "it must consist of lines such as option: value"
        raise UserError(f"{what} is not a mapping of options", where=str(path), why=why)
    return options


def override(options: dict[str, Any], assignments: Sequence[str]) -> dict[str, Any]:
    """Return the options with each "a.b=value" assignment applied. Values are read as YAML."""
    result = {
        key: dict(value) if isinstance(value, dict) else value for key, value in options.items()
    }
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        *section, key = name.strip().split(".")
        if not equals or len(section) > 1:
            why = f"got {assignment!r}"
            raise UserError("--set takes key=value or section.key=value", why=why)
        if section and result.get(section[0]) is None:
            result[section[0]] = {}
        place = result[section[0]] if section else result
        if not isinstance(place, dict):
            raise UserError(
                "--set cannot set an option inside an option", why=f"got {assignment!r}"
            )
        import yaml

        try:
            place[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise UserError("the value of --set is not valid YAML", why=str(error)) from error
    return result
