"""Take the pictures of pages in docs/images: `make pictures`, after `make demo`. Needs Chromium."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

import tokenmill

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "demo/out/corpus"
SECTIONS = {"lengths": "#lengths-of-documents", "batch": "#a-batch"}
WIDTH = 1000


def main() -> None:
    """Write the report of the demo's dataset, and take pictures of its parts, light and dark."""
    chromium = shutil.which("chromium")
    if chromium is None or not CORPUS.is_dir():
        sys.exit("needs Chromium, and the dataset of make demo")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_file = Path(folder, "report.html")
        plan = Path(folder, "best-fit-8192")
        tokenmill.pack(CORPUS, sequence_length=8192, folder=plan)
        tokenmill.report(CORPUS, page_file, plan=plan)
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": WIDTH, "height": 900}, color_scheme=scheme, device_scale_factor=1
            )
            page.goto(page_file.as_uri())
            take(page, scheme)


def take(page: Page, scheme: str) -> None:
    """Take one picture of each section; texts are left out of that of the batch."""
    hidden = ".turn, .leaves, details, #a-batch h3:last-of-type { display: none }"
    page.add_style_tag(content=f"section {{ margin: 0; padding: 1rem }} {hidden}")
    for name, section in SECTIONS.items():
        page.locator(section).screenshot(path=ROOT / f"docs/images/report-{name}-{scheme}.png")


if __name__ == "__main__":
    main()
