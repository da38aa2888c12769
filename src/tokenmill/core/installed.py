"""What is installed."""

from __future__ import annotations

import functools


@functools.lru_cache(maxsize=64)  # a build asks for a dozen versions four times
def installed_version(name: str) -> str:
    """Return the version of an installed distribution.

    Raises:
        ModuleNotFoundError: the distribution is not installed.
    """
    import importlib.metadata  # takes 60 ms

    return importlib.metadata.version(name)


def install_command(extra: str) -> str:
    """Return the command that installs an extra of tokenmill.

    If tokenmill was installed from a local checkout, the command names its folder.
    """
    import importlib.metadata
    import json
    import shlex
    from urllib.parse import unquote, urlparse

    try:
        found = importlib.metadata.distribution("tokenmill")
        origin = json.loads(found.read_text("direct_url.json") or "")
        folder = unquote(urlparse(origin["url"]).path)
        is_editable = origin["dir_info"].get("editable", False)
    except (ModuleNotFoundError, ValueError, LookupError):
        return f"pip install 'tokenmill[{extra}]'"
    return f"pip install {'-e ' * is_editable}{shlex.quote(f'{folder}[{extra}]')}"
