"""A real browser for pages: Chromium, if the machine has one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")


@contextmanager
def opened_page(address: str | Path, width: int = 1280, scheme: str = "light") -> Iterator[Any]:
    """A page in a window of this width; at the end, nothing may have gone wrong in it."""
    from playwright.sync_api import sync_playwright

    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "console",
            lambda said: problems.append(said.text) if said.type in ("error", "warning") else None,
        )
        page.goto(address.as_uri() if isinstance(address, Path) else address)
        yield page
        browser.close()
    assert problems == []


def accessibility_problems(page: Any) -> list[str]:
    """What axe-core objects to."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [f"{each['id']}: {each['nodes'][0]['html'][:200]}" for each in found]
