"""The files in examples/cluster are run, by Slurm and over ssh, or checked by their schema."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from corpora import command, contents, tokenmill, wait_for, write_corpus
from slurm_lab import SlurmLab

pytestmark = pytest.mark.cluster

EXAMPLES = Path(__file__).parents[2] / "examples" / "cluster"


@pytest.fixture
def local(tmp_path: Path, tokenizer_path: Path) -> Path:
    """A dataset of `data/`, built on one machine."""
    write_corpus(tmp_path / "data", num_files=6, per_file=200)
    arguments = [tmp_path / "data", "--tokenizer", tokenizer_path, "--out", tmp_path / "local"]
    done = tokenmill("build", *arguments, small=False)
    assert done.returncode == 0, done.stderr
    return tmp_path / "local"


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A command `tokenmill`, as an installation has it."""
    path = tmp_path / "bin" / "tokenmill"
    path.parent.mkdir()
    path.write_text(
        f'#!/bin/sh\nPYTHONPATH={":".join(sys.path)} exec {sys.executable} -m tokenmill "$@"\n'
    )
    path.chmod(0o755)
    return path


def test_the_array_builds_what_one_machine_builds(
    slurm: SlurmLab, local: Path, program: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    variables = {
        "INPUT": str(tmp_path / "data"),
        "TOKENIZER": str(tokenizer_path),
        "OUT": str(tmp_path / "out"),
        "PATH": f"{program.parent}:{slurm.environment['PATH']}",
    }
    folder, script = f"--chdir={tmp_path}", str(EXAMPLES / "build.sbatch")
    array = slurm.run("sbatch", "--parsable", "--array=0-2", folder, script, within=variables)
    slurm.wait_for_end(array)
    logs = "".join(path.read_text() for path in tmp_path.glob("tokenmill-*.log"))
    assert {job["ExitCode"] for job in slurm.jobs(array)} == {"0:0"}, logs
    assert contents(tmp_path / "out") == contents(local)


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[str]:
    """A command that reaches the hosts h1, h2 and h3, all of them this machine."""
    sshd = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
    if sshd is None or os.geteuid() != 0:
        pytest.skip("no sshd is installed, or it cannot be started (make cluster installs it)")
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host_key", "user_key"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    Path("/run/sshd").mkdir(exist_ok=True)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host_key\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/user_key.pub\nPidFile none\nUsePAM no\nPermitRootLogin yes\n"
    )
    (folder / "config").write_text(
        f"Host h1 h2 h3\n HostName 127.0.0.1\n Port {port}\n IdentityFile {folder}/user_key\n"
        " User root\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
    )
    daemon = subprocess.Popen([sshd, "-D", "-e", "-f", str(folder / "sshd_config")])
    try:
        config = f"ssh -F {folder}/config"
        wait_for(lambda: subprocess.run([*config.split(), "h1", "true"]).returncode == 0)
        yield config
    finally:
        daemon.terminate()
        daemon.wait()


def test_hosts_of_a_list_build_what_one_machine_builds(
    ssh: str, local: Path, program: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    (tmp_path / "hosts").write_text("# three machines\nh1\nh2\n\nh3\n")
    arguments = ["build", "data", "--tokenizer", str(tokenizer_path), "--out", "with spaces"]
    done = subprocess.run(
        [EXAMPLES / "over-ssh", "hosts", *arguments],
        cwd=tmp_path,
        env={**os.environ, "SSH": ssh, "TOKENMILL": str(program)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [
        f"agent-{index}.log" for index in range(3)
    ]
    assert contents(tmp_path / "with spaces") == contents(local)


@pytest.fixture
def job() -> Any:
    """The Job of Kubernetes."""
    return yaml.safe_load((EXAMPLES / "kubernetes-job.yaml").read_text())


def test_the_job_fits_the_schema_of_kubernetes(job: Any) -> None:
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate is not installed (make cluster does)"
    )
    for version in ("1.33", validate.latest_version()):
        validate.validate(job, version, strict=True)
    with pytest.raises(validate.ValidationError):
        validate.validate({**job, "completions": 3}, validate.latest_version(), strict=True)


def test_the_job_follows_the_rules_that_no_schema_holds(job: Any) -> None:
    """As the API server checks them: FailIndex needs a limit per index, a policy Never."""
    spec, (agent,) = job["spec"], job["spec"]["template"]["spec"]["containers"]
    assert spec["completionMode"] == "Indexed"
    assert spec["template"]["spec"]["restartPolicy"] == "Never"
    assert "backoffLimitPerIndex" in spec
    assert spec["maxFailedIndexes"] <= spec["completions"]
    assert {"name": "JOB_COMPLETIONS", "value": str(spec["completions"])} in agent["env"]
    assert [rule["action"] for rule in spec["podFailurePolicy"]["rules"]] == ["Ignore", "FailIndex"]
    for rule in spec["podFailurePolicy"]["rules"][1:]:
        assert rule["onExitCodes"]["containerName"] == agent["name"]
        assert rule["onExitCodes"]["values"] == [2, 3, 4, 5, 8]
    volumes = {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in agent["volumeMounts"]} == volumes


def test_three_of_the_pods_build_what_one_machine_builds(
    job: Any, local: Path, tmp_path: Path, tokenizer_path: Path
) -> None:
    """Each pod as a process, with the places of this machine in place of those of the cluster."""
    (agent,) = job["spec"]["template"]["spec"]["containers"]
    places = {
        "s3://bucket/text/*.jsonl.zst": str(tmp_path / "data"),
        "--tokenizer=/etc/tokenmill/tokenizer.json": f"--tokenizer={tokenizer_path}",
        "--out=s3://bucket/corpus": f"--out={tmp_path / 'out'}",
    }
    words = [places.get(word, word) for word in agent["args"]]
    variables = {each["name"]: each["value"] for each in agent["env"]}
    variables["TMPDIR"] = str(tmp_path)
    pods = [
        subprocess.Popen(
            command(*words, small=False),
            env={**os.environ, **variables, "JOB_COMPLETION_INDEX": str(index)},
        )
        for index in range(3)
    ]
    assert [pod.wait() for pod in pods] == [0] * len(pods)
    assert contents(tmp_path / "out") == contents(local)
