"""A build with many small units, which a test hurts."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corpora import contents, write_corpus
from slurm_lab import SlurmLab, wait_until

from tokenmill.run.launch import LaunchRequest
from tokenmill.run.recipe.options import Recipe
from tokenmill.run.slurm import write_scripts

SMALL_AGENT = Path(__file__).with_name("small_agent.py")
FOLDERS = (SMALL_AGENT.parent, SMALL_AGENT.parents[1] / "run")


@dataclass
class Trial:
    """One corpus, one output, any number of agents."""

    folder: Path
    delay: float = 0.02
    """Seconds a document."""
    num_files: int = 12
    per_file: int = 200
    patience: float | None = None
    """Seconds until others take over from a silent agent; None: the default."""

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        write_corpus(self.folder / "data", self.num_files, self.per_file)

    @property
    def out(self) -> Path:
        """The output, if it is a folder."""
        return self.folder / "out"

    @property
    def environment(self) -> dict[str, str]:
        """Of agents."""
        path = ":".join([*map(str, FOLDERS), *filter(None, sys.path)])
        return {"DELAY": str(self.delay), "PYTHONPATH": path}

    def command(self, out: Path | str, *options: str) -> tuple[str, ...]:
        """The command line of a build."""
        tokenizer = ["--tokenizer", "python:small_agent:DelayedBytes"]
        words = ["build", str(self.folder / "data"), *tokenizer, "--out", str(out)]
        patience = [] if self.patience is None else ["--patience", str(self.patience)]
        return (*words, "--workers", "1", *patience, *options)

    def agent(
        self, *options: str, out: Path | str = "", within: Sequence[str] = (), **variables: str
    ) -> subprocess.Popen[str]:
        """Start an agent on this machine; `within` are words before it, as those of unshare."""
        words = [
            *within,
            sys.executable,
            str(SMALL_AGENT),
            *self.command(out or self.out, *options),
        ]
        return subprocess.Popen(
            words,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **self.environment, **variables},
        )

    def local(self) -> dict[str, bytes]:
        """What one machine without any fault makes of the corpus."""
        with self.agent(out=self.folder / "local", DELAY="0") as process:
            text, _ = process.communicate(timeout=200)
        assert process.returncode == 0, text
        return contents(self.folder / "local")

    def names(self, folder: str) -> set[str]:
        """The files below `work/` of the output."""
        place = self.out / "work" / folder
        with contextlib.suppress(FileNotFoundError):  # it goes away when the dataset is complete
            return {path.name for path in place.iterdir()}
        return set()

    def wait_for_receipts(self, count: int, seconds: float = 120) -> None:
        """Wait until so many units are done."""
        what = f"{count} receipts"
        wait_until(lambda: len(self.names("receipts")) >= count, seconds, what)

    def claimed_by(self, agent: str) -> set[str]:
        """The items that an agent has claimed."""
        place = self.out / "work" / "claims"
        claims = {path.name: path.read_text() for path in place.rglob("*.*")}
        return {name.partition(".")[0] for name, text in claims.items() if agent in text}

    def undone(self, items: set[str]) -> set[str]:
        """Those of some items that have no receipt; none once the dataset is complete."""
        done = {name.partition(".")[0] for name in self.names("receipts")}
        return set() if (self.out / "manifest.json").exists() else items - done

    def beats(self) -> dict[str, Any]:
        """What each agent says of itself."""
        place = self.out / "work" / "agents"
        found = (json.loads(path.read_text()) for path in place.glob("*.json"))
        return {beat["agent"]: beat for beat in found}


@dataclass(kw_only=True)
class SlurmTrial(Trial):
    """One that a Slurm cluster builds."""

    slurm: SlurmLab
    target: str = ""
    """The output, if it is a bucket; scripts and logs are then in the current folder."""

    def scripts(self, agents: int, *options: str) -> tuple[Path, Path]:
        """The files that --on slurm writes, with this test's program in place of tokenmill."""
        out = self.target or str(self.out)
        command = self.command(out, *options)
        recipe = Recipe(inputs=["data"], tokenizer="t", out=out)
        request = LaunchRequest(
            where="slurm", recipe=recipe, command=command, num_agents=agents, options={}, say=print
        )
        scripts = write_scripts(request, agents, "")
        for path in scripts:
            edit(path, "-m tokenmill", str(SMALL_AGENT))
            edit(path, "export TOKENMILL_JOB=\n", "")
        return scripts

    def submit(self, agents: int, *options: str) -> str:
        """Submit an array; returns its id."""
        return self.sbatch(self.scripts(agents, *options)[0])

    def sbatch(self, script: Path, *options: str) -> str:
        """Submit a file."""
        words = ("sbatch", "--parsable", *options, str(script))
        return self.slurm.run(*words, within=self.environment)

    def is_running(self, job: str) -> bool:
        """Whether a job, or a task of an array, waits or runs."""
        return bool(self.slurm.run("squeue", "--noheader", "--jobs", job))

    def finish(self) -> str:
        """Run the finishing job to its end; returns its state."""
        job = self.sbatch(self.scripts(1)[1])
        self.slurm.wait_for_end(job)
        return self.slurm.jobs(job)[0]["JobState"]

    def logs(self) -> str:
        """Everything that the jobs have printed."""
        paths = sorted((self.folder / "out.slurm" / "logs").glob("*.log"))
        return "".join(f"--- {path.name}\n{path.read_text()}" for path in paths)


def edit(script: Path, old: str, new: str) -> None:
    """Change a file that --on slurm wrote, as a user may."""
    text = script.read_text()
    assert old in text
    script.write_text(text.replace(old, new))
