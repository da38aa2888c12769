"""A whole page: its head, its policy, its style, and its scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from tokenmill.core.html import Html, element, escaped, joined
from tokenmill.core.installed import installed_version

GENERATOR = b'<meta name="generator" content="tokenmill '
"""How a page says who made it; it stands near its beginning."""
_RESOURCES = files("tokenmill.reports.page")


def resource(name: str) -> str:
    """A style or a script of the package."""
    return _RESOURCES.joinpath(name).read_text(encoding="utf-8")


def whole_page(title: str, parts: Sequence[Html]) -> str:
    """A self-contained page: it loads nothing, and runs only the scripts of this package."""
    scripts = [resource("plot.min.js"), resource("page.js")]
    allowed = " ".join(f"'sha256-{digest_of(script)}'" for script in scripts)
    # Plot writes styles into the pictures that it draws.
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'"
    head = [
        Html('<meta charset="utf-8">'),
        Html(f'{GENERATOR.decode()}{installed_version("tokenmill")}">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        element("title", escaped(title)),
        Html(f"<style>{resource('page.css')}</style>"),
    ]
    made = f"Made by tokenmill {installed_version('tokenmill')}."
    body = [
        element("main", *parts),
        element("footer", element("p", escaped(made))),
        *(Html(f"<script>{script}</script>") for script in scripts),
    ]
    inside = [element("head", joined(head)), element("body", joined(body))]
    return f'<!doctype html>\n<html lang="en">\n{joined(inside)}\n</html>\n'


def digest_of(text: str) -> str:
    """The digest of a script or a style as policies write it."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
