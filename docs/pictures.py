"""Take the pictures of pages in docs/images: `make pictures`, after `make demo`. Needs Chromium."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import msgspec
from playwright.sync_api import Browser, Page, sync_playwright

import tokenmill
from tokenmill.reports.page.server import PageServer
from tokenmill.reports.watching import Run
from tokenmill.run.agreement import JobRecord
from tokenmill.run.journal.agents import AgentState, Tallies, state_name
from tokenmill.store.canonical import canonical_json, sealed
from tokenmill.store.objects.folder import FolderStore

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
        take_live(browser, build_under_way(Path(folder, "corpus")))
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


def build_under_way(folder: Path) -> Run:
    """A build by three agents, one of them slow, that was watched for half an hour."""
    store, run, random_ = FolderStore(folder), Run(str(folder)), random.Random(1)  # noqa: S311
    job = sealed(JobRecord(job="a", identity=msgspec.Raw(b"{}")))
    store.create("work/job.json", canonical_json(job))
    for number in range(131):
        store.create(f"work/claims/00000000-{number:06}.0", b"")
        if number < 117:
            store.create(f"work/receipts/00000000-{number:06}.json", b"")
    done, begun = [0.0, 0.0, 0.0], time.time()
    for moment in range(1, 91):
        for at, speed in enumerate((9.5e6, 10.1e6, 3.8e6)):
            done[at] += 20 * speed * random_.uniform(0.8, 1.2) * min(moment / 5, 1)
            total = int(done[at])
            tallies = Tallies(
                documents=total // 4300, tokens=total // 4, bytes_done=total,
                bytes_total=90 * 10**9, items=["a"] * 16, finished_bytes=total,
                disk_bytes=total // 2, memory_bytes=11 * 10**9,
                rejected={"invalid-json": total // 10**8, "missing-field": total // 10**9},
                stages={"read": 14.0, "encode": 71.0, "write": 9.0, "fsync": 6.0},
            )  # fmt: skip
            state = AgentState(
                agent=f"0000{at}-9f3a2c5{at}", counter=moment, host=f"node-{at}", workers=16,
                seconds=20.0 * moment, clock=begun + 20 * moment, tallies=tallies,
            )  # fmt: skip
            store.replace(state_name(state.agent), canonical_json(state))
        run.read()
    return run


def take_live(browser: Browser, run: Run) -> None:
    """Take pictures of the page of a running build, light and dark."""
    with PageServer(0, lambda: [run.now]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for scheme in ("light", "dark"):
            page = browser.new_page(viewport={"width": 760, "height": 900}, color_scheme=scheme)
            page.goto(server.address)
            page.locator("section").screenshot(path=ROOT / f"docs/images/watch-{scheme}.png")
        server.shutdown()


if __name__ == "__main__":
    main()
