"""A build from a bucket shows its keys to nobody."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from cloud_kit.s3 import ENVIRONMENT
from conftest import write_jsonl

SECRET = ENVIRONMENT["AWS_SECRET_ACCESS_KEY"]


def command_lines(process: psutil.Popen) -> set[str]:
    try:
        return {" ".join(each.cmdline()) for each in [process, *process.children(recursive=True)]}
    except psutil.Error:
        return set()


def test_no_output_file_or_command_line_holds_a_secret(
    bucket: Any, tokenizer_path: Path, tmp_path: Path
) -> None:
    path = write_jsonl(tmp_path / "a.jsonl", ["text"] * 2000)
    bucket.upload_file(str(path), "a.jsonl")
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tokenmill", "build", f"s3://{bucket.name}/a.jsonl"]
    command += ["--tokenizer", str(tokenizer_path), "--out", str(out), "--workers", "1"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    seen: set[str] = set()
    with psutil.Popen(command, **pipes) as process:
        while process.poll() is None:
            seen |= command_lines(process)
        output = process.stdout.read()
    assert process.returncode == 0, output
    assert (out / "manifest.json").is_file()
    assert seen
    written = [file.read_bytes() for file in out.rglob("*") if file.is_file()]
    assert not any(SECRET in text for text in (output, *seen))
    assert not any(SECRET.encode() in data for data in written)
