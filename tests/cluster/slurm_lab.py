"""A Slurm cluster of three nodes on this machine, in a temporary folder and on free ports.

Everything is real but the machines: slurmctld, a slurmd for each node and munged, of the packages
that `make cluster` installs. The daemons run in the foreground and end with the lab.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel")
NODES = ("n1", "n2", "n3")
LOST_SECONDS = 10
"""A node that has been silent for so long is down."""

CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
SlurmdSpoolDir={folder}/spool.%n
StateSaveLocation={folder}/state
ReturnToService=2
SlurmdTimeout={lost_seconds}
KillWait=15
OverTimeLimit=0
JobRequeue=1
MaxArraySize=40
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SlurmdParameters=config_overrides
{nodes}
PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why no lab can be started on this machine; "" if one can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"Slurm is not installed: {', '.join(missing)} (make cluster installs it as root)"
    return "" if os.geteuid() == 0 else "slurmd must be started as root"


@dataclass
class SlurmLab:
    """A running cluster."""

    folder: Path
    daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach the cluster."""
        others = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM", "SBATCH"))}
        return {**others, "PATH": _path(), "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start_node(self, name: str, within: Sequence[str] = ()) -> None:
        """Start the slurmd of a node; `within` are words before it, such as those of unshare."""
        (self.folder / f"spool.{name}").mkdir(exist_ok=True)
        self._start(name, *within, "slurmd", "-D", "-N", name)

    def kill_daemon(self, name: str) -> None:
        """Kill the slurmd of a node, and nothing else: its jobs live on."""
        daemon = self.daemons.pop(name)
        for process in _with_children(daemon):
            if process.name() in ("slurmd", "unshare"):
                process.kill()
        daemon.wait()

    def kill_node(self, name: str) -> None:
        """Kill everything that runs on a node at once, as when its power fails."""
        self.kill_daemon(name)
        self._kill_jobs(name)

    def processes_of(self, name: str) -> list[psutil.Process]:
        """The processes of the jobs on a node, those of Slurm that watch over them first."""
        found, watchers = [], []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                environment = process.environ()
                ours = environment.get("SLURM_CONF") == self.environment["SLURM_CONF"]
                if ours and environment.get("SLURMD_NODENAME") == name:
                    found.append(process)
                    watchers += [p for p in process.parents() if p.name() == "slurmstepd"]
        return [*watchers, *found]

    def run(self, *command: str, within: Mapping[str, str] | None = None) -> str:
        """Run a command of Slurm, or any other, and return what it prints."""
        environment = {**self.environment, **(within or {})}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=120, check=False
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def answers(self) -> bool:
        """Whether the controller can be asked."""
        ping = subprocess.run(("scontrol", "ping"), env=self.environment, capture_output=True)
        return b" is UP" in ping.stdout

    def nodes_that_are(self, state: str) -> set[str]:
        """The nodes in a state, such as idle, down or alloc."""
        text = self.run("sinfo", "--noheader", "--Node", "--format=%N %T")
        rows = (line.split() for line in text.splitlines())
        return {name for name, found in rows if found.startswith(state)}

    def jobs(self, job: str) -> list[dict[str, str]]:
        """All that Slurm says of each job or array task with this id."""
        text = self.run("scontrol", "--oneliner", "show", "job", job)
        return [
            dict(word.split("=", 1) for word in line.split() if "=" in word)
            for line in text.splitlines()
        ]

    def wait_for_end(self, *jobs: str, seconds: float = 300) -> None:
        """Wait until none of these jobs is waiting or running."""
        wait_until(
            lambda: not self.run("squeue", "--noheader", "--jobs", ",".join(jobs)),
            seconds,
            f"the end of the jobs {jobs}",
        )

    def make_idle(self) -> None:
        """End all jobs, and start the nodes that were killed."""
        self.run("scancel", "--user=root")
        self._kill_jobs(*NODES)
        for name in NODES:
            if name not in self.daemons:
                self.start_node(name)
        wait_until(lambda: self.nodes_that_are("idle") == set(NODES), 60, "three idle nodes", self)

    def _start(self, name: str, *command: str) -> None:
        log = open(self.folder / f"{name}.out", "ab")  # noqa: SIM115 - the process keeps it
        with log:
            self.daemons[name] = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )

    def _kill_jobs(self, *names: str) -> None:
        for process in [p for name in names for p in self.processes_of(name)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def _stop(self) -> None:
        self._kill_jobs(*NODES)
        for daemon in self.daemons.values():
            for process in _with_children(daemon):
                process.kill()
            daemon.wait()


@contextmanager
def slurm_lab(folder: Path) -> Iterator[SlurmLab]:
    """Start a cluster whose files are in `folder`, and stop all of it in the end."""
    (folder / "state").mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    controller_port, *ports = _free_ports(1 + len(NODES))
    host = socket.gethostname().partition(".")[0]
    nodes = "\n".join(
        f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 "
        "RealMemory=4000 State=UNKNOWN"
        for name, port in zip(NODES, ports, strict=True)
    )
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            host=host,
            controller_port=controller_port,
            folder=folder,
            lost_seconds=LOST_SECONDS,
            nodes=nodes,
        )
    )
    lab = SlurmLab(folder)
    try:
        files = ("socket", "pid-file", "log-file", "seed-file", "key-file")
        names = ("munge.socket", "munged.pid", "munged.log", "munge.seed", "munge.key")
        options = [f"--{file}={folder / name}" for file, name in zip(files, names, strict=True)]
        lab._start("munged", "munged", "--foreground", "--force", *options)
        wait_until((folder / "munge.socket").exists, 20, "munged")
        lab._start("slurmctld", "slurmctld", "-D")
        wait_until(lab.answers, 20, "slurmctld", lab)
        lab.make_idle()
        yield lab
    finally:
        lab._stop()


def wait_until(
    holds: Callable[[], object], seconds: float, what: str, lab: SlurmLab | None = None
) -> None:
    """Wait until something holds; fails, and shows the logs of the lab, if it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            logs = [p.read_text()[-2000:] for p in lab.folder.glob("*.log")] if lab else []
            raise AssertionError("\n".join([f"waited {seconds} s for {what}", *logs]))
        time.sleep(0.2)


def _with_children(daemon: subprocess.Popen[bytes]) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(daemon.pid)
        return [*process.children(recursive=True), process]
    return []


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def _path() -> str:
    """Daemons are in folders of root's."""
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin:/usr/local/sbin"
