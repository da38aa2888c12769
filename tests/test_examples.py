"""The examples do what they say: losses fall, and a stop does not change them.

Their processes are forked from one that has imported what takes seconds, and begin there.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tokenmill
from cloud_kit.s3 import BUCKET, moto, s3_environment

if TYPE_CHECKING:
    from model import GPT

EXAMPLES = Path(__file__).parents[1] / "examples"
STEPS, STOP = 5, 3
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
"""One thread, so as not to wait for cores."""
FORKING = """
import contextlib, functools, gc, json, os, runpy, signal, sys
import torch._dynamo, torch.distributed, torch.nn.parallel
import tokenmill.load.loader
from tokenmill.kernels.permutation import Permutation
with contextlib.suppress(ImportError):
    import accelerate
    from transformers import LlamaForCausalLM, Trainer
with contextlib.suppress(ImportError):
    import lightning

def run(script, arguments, environment, output, small):
    os.environ.update(environment)
    for descriptor in (1, 2):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    sys.argv, sys.path[0] = [script, *arguments], os.path.dirname(script)
    if small:
        import model
        model.GPTConfig = functools.partial(model.GPTConfig, num_layers=1, width=16)
    runpy.run_path(script, run_name="__main__")
    sys.exit()

Permutation(2, seed=0)([0, 1])  # loads what compiled functions need, in a second
gc.freeze()  # a collection in a child would copy all pages
for line in sys.stdin:
    children, code = set(), 0
    for task in json.loads(line):
        if not (child := os.fork()):
            run(*task)
        children.add(child)
    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            code = code or os.waitstatus_to_exitcode(status)
            for other in children:  # may wait for this one
                os.kill(other, signal.SIGKILL)
    print(code, flush=True)
"""
Run = Callable[..., str]
"""What an example prints, from its name, its arguments, and variables of its environment.

`small=True` makes its model very small; `ranks` has variables of each of several processes.
"""

torch = pytest.importorskip("torch", reason="the examples need torch")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> GPT:
    """The examples' model, very small and in float64."""
    monkeypatch.syspath_prepend(EXAMPLES)
    from model import GPT, GPTConfig

    torch.manual_seed(0)
    return GPT(GPTConfig(vocab_size=50, num_layers=2, width=32)).double()


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Runs an example in processes of its own."""
    output = tmp_path_factory.mktemp("printed") / "output"
    with subprocess.Popen(
        [sys.executable, "-c", FORKING],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | ENVIRONMENT,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def run_forked(
            script: str,
            *arguments: str,
            small: bool = False,
            ranks: Sequence[dict[str, str]] = ({},),
            **environment: str,
        ) -> str:
            output.write_bytes(b"")
            path = str(EXAMPLES / script)
            tasks = [(path, arguments, environment | rank, str(output), small) for rank in ranks]
            print(json.dumps(tasks), file=server.stdin, flush=True)
            code, printed = server.stdout.readline(), output.read_text(encoding="utf-8")
            assert code == "0\n", printed
            return printed

        yield run_forked
        server.kill()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small dataset of the examples."""
    folder = tmp_path_factory.mktemp("examples")
    return Path(run("corpus.py", str(folder)).strip())


@pytest.fixture(scope="module")
def curve(forked: Run, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """The losses of train.py without a stop."""
    return losses(forked, "train.py", dataset, tmp_path_factory.mktemp("train") / "out")


@pytest.mark.parametrize("script", ["train.py", "train_from_pt.py"])
def test_training_from_the_loader_or_exported_rows_goes_on_with_the_same_losses(
    script: str, forked: Run, dataset: Path, curve: dict[int, str], tmp_path: Path
) -> None:
    assert falls(curve)
    assert stopped_and_resumed(forked, script, dataset, tmp_path / "out") == curve


def test_trainer_goes_on_with_the_same_losses(forked: Run, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    script = "train_with_trainer.py"
    whole = losses(forked, script, dataset, tmp_path / "whole")
    assert falls(whole)
    assert stopped_and_resumed(forked, script, dataset, tmp_path / "stopped") == whole


def test_lightning_goes_on_with_the_same_losses(forked: Run, dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("lightning", reason="lightning is not installed")
    assert falls(stopped_and_resumed(forked, "train_with_lightning.py", dataset, tmp_path))


def test_a_run_that_changes_gives_each_token_once(forked: Run, tmp_path: Path) -> None:
    arguments = ("--steps", "8", "--out", str(tmp_path))
    printed = forked("change_a_run.py", *arguments, small=True).splitlines()
    assert re.findall(r"step \d+ rows (\d+)", "\n".join(printed)) == [
        *("8", "8", "16", "16", "16", "16", "12", "12"),
    ]
    assert printed[-5] == "replayed on 1 rank: 8 global batches are equal"
    assert re.search(r"^given once: .* none of them twice in its epoch$", printed[-4])
    assert all(
        re.search(r" [1-9]\d* of their tokens .* 0 after it$", line) for line in printed[-2:]
    )


def test_larger_vocabularies_need_fewer_tokens(tmp_path: Path) -> None:
    printed = run("train_tokenizers.py", "--out", str(tmp_path))
    ratios = re.findall(r"vocabulary-(\d+): (\S+) bytes a token", printed)
    assert [int(size) for size, _ in ratios] == [512, 1024, 4096]
    assert sorted(ratios, key=lambda each: float(each[1])) == ratios


def test_every_example_is_listed() -> None:
    listed = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    for path in [*EXAMPLES.glob("*.py"), *EXAMPLES.glob("cluster/*")]:
        assert f"({path.relative_to(EXAMPLES)})" in listed or path.name == "run_notebook.py"


def test_training_from_a_bucket_goes_on_with_another_number_of_ranks(
    forked: Run, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = f"s3://{BUCKET}/corpus"
    shared, alone = tmp_path / "shared", tmp_path / "alone"
    sizes = ["--batch-size", "4", "--steps", str(STEPS)]
    with moto() as port:
        store = s3_environment(port)
        for name, value in store.items():
            monkeypatch.setenv(name, value)
        tokenmill.copy(dataset, location)
        remote = [*sizes, "--dataset", location, "--cache", str(tmp_path / "cache")]
        remote += ["--out", str(shared)]
        run_ddp = partial(forked, "train_ddp.py", **store)
        printed = run_ddp(*remote, "--interrupt-at", str(STOP), ranks=torchrun(2))
        printed += run_ddp(*remote, ranks=torchrun(1))
    local = [*sizes, "--dataset", str(dataset), "--out", str(alone)]
    whole = run_ddp(*local, ranks=torchrun(1))
    batches = tokenmill.open(dataset).batches(global_batch_size=4, epochs=None, labels="next")
    digests = [(step + 1, batches.digest(step)[:16]) for step in range(STEPS)]
    for each in (printed, whole):
        assert [(step, digest) for step, digest, _ in steps_of(each)] == digests
    expected = [loss for _, _, loss in steps_of(whole)]
    assert [loss for _, _, loss in steps_of(printed)] == pytest.approx(expected, abs=1e-4)


def torchrun(world_size: int) -> list[dict[str, str]]:
    """What torchrun tells each of the processes that it starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    every = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world_size)}
    return [{"RANK": str(rank), "LOCAL_RANK": str(rank), **every} for rank in range(world_size)]


def steps_of(printed: str) -> list[tuple[int, str, float]]:
    """Steps that train_ddp.py prints: the ids of their batches, and their losses."""
    found = re.findall(r"^step (\d+) batch (\w+) loss (\S+)$", printed, re.MULTILINE)
    return [(int(step), digest, float(loss)) for step, digest, loss in found]


def test_the_model_keeps_documents_in_a_row_apart(model: GPT) -> None:
    first, second = torch.arange(1, 8)[None], torch.arange(20, 25)[None]
    positions = [torch.arange(7)[None], torch.arange(5)[None]]
    packed = model(torch.cat([first, second], 1), torch.cat(positions, 1))
    alone = torch.cat([model(first, positions[0]), model(second, positions[1])], 1)
    torch.testing.assert_close(packed, alone, rtol=0, atol=1e-12)


def test_micro_batches_do_not_change_what_is_learned(model: GPT) -> None:
    from training import train_step

    ids = torch.randint(50, (4, 8))
    labels = ids.roll(-1, 1)
    labels[0, 1:] = labels[3, 4:] = -100  # so that parts differ in what they are trained on
    positions = torch.arange(8).repeat(4, 1)
    batch = {"input_ids": ids, "labels": labels, "position_ids": positions}
    results = []
    for count in (1, 4):
        copied = copy.deepcopy(model)
        optimizer = torch.optim.SGD(copied.parameters(), lr=0.1)
        parts = tokenmill.micro_batches(batch, count)
        loss = train_step(copied, optimizer, parts, int((labels >= 0).sum()))
        results.append((loss, list(copied.parameters())))
    torch.testing.assert_close(*results, rtol=0, atol=1e-12)


def test_the_notebook_runs_and_shows_no_place_of_this_machine(tmp_path: Path) -> None:
    for package in ("nbclient", "ipykernel", "matplotlib"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    committed = EXAMPLES / "walkthrough.ipynb"
    rerun = Path(shutil.copy(committed, tmp_path))
    run("run_notebook.py", str(rerun))
    for path in (committed, rerun):
        assert path.stat().st_size < 400_000
        shown = "\n".join(texts(json.loads(path.read_text(encoding="utf-8"))))
        assert "the same to the bit: True" in shown
        assert not re.search(r"/(home|root|tmp|usr|var|opt|work)/", shown)
        assert "Traceback" not in shown


def texts(value: object, name: str = "") -> Iterator[str]:
    """All texts in a notebook but its pictures."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from texts(each, key)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each, name)
    elif isinstance(value, str) and name != "image/png":
        yield value


def stopped_and_resumed(forked: Run, script: str, dataset: Path, out: Path) -> dict[int, str]:
    """The losses of a run that is stopped, and of one that goes on in another process."""
    before = losses(forked, script, dataset, out, "--interrupt-at", str(STOP))
    assert list(before) == list(range(1, STOP + 1))
    after = losses(forked, script, dataset, out)
    assert list(after) == list(range(STOP + 1, STEPS + 1))
    return before | after


def losses(forked: Run, script: str, dataset: Path, out: Path, *more: str) -> dict[int, str]:
    """The losses that an example prints, by step, with all their digits."""
    places = ["--dataset", str(dataset), "--out", str(out)]
    sizes = ["--steps", str(STEPS), "--batch-size", "4", "--micro-batches", "2"]
    printed = forked(script, *places, *sizes, *more)
    found = re.findall(r"^step (\d+) loss (\S+)$", printed, re.MULTILINE)
    return {int(step): loss for step, loss in found}


def falls(curve: dict[int, str]) -> bool:
    return float(curve[STEPS]) < float(curve[1]) - 0.2


def run(script: str, *arguments: str) -> str:
    """What an example prints, run as a user would."""
    finished = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | ENVIRONMENT,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize(
    ("example", "missing", "extras"),
    [
        ("train.py", "torch", "torch"),
        ("train_with_trainer.py", "accelerate", "all,examples"),
        ("train_on_conversations.py", "datasets", "all,examples"),
        ("run_notebook.py", "matplotlib", "all,examples"),
    ],
)
def test_an_example_says_what_to_install(example: str, missing: str, extras: str) -> None:
    hidden = (
        f"import sys, runpy; sys.modules[{missing!r}] = None; sys.path.insert(0, {str(EXAMPLES)!r})"
    )
    script = f"runpy.run_path({str(EXAMPLES / example)!r}, run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", f"{hidden}; {script}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert missing in done.stderr
    assert done.stderr.splitlines()[-1] == f"next: pip install '.[{extras}]'"
    assert "Traceback" not in done.stderr
