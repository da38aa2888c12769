"""How many workers and how much memory: from the options, and from what the machine allows."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenmill.run import machine as cgroup
from tokenmill.run.machine import (
    MAX_BATCH_BYTES,
    MIN_BATCH_BYTES,
    Resources,
    choose_resources,
)
from tokenmill.run.recipe.options import ResourceOptions

CORES_OF_MACHINE = True


class Machine:
    """A machine of 10 physical and 20 logical cores with 64 GB free, unless a test changes it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.cores: int | None = 10
        self.affinity = set(range(20))
        self.available = 64_000_000_000
        self.cgroups = folder / "sys/fs/cgroup"
        self.cgroups.mkdir(parents=True)
        self.cpu_max = self.cgroups / "cpu.max"
        self.own = folder / "proc/self/cgroup"
        self.own.parent.mkdir(parents=True)
        monkeypatch.setattr(psutil, "cpu_count", lambda logical: self.cores)
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: self.affinity, raising=False)
        memory = SimpleNamespace
        monkeypatch.setattr(psutil, "virtual_memory", lambda: memory(available=self.available))
        monkeypatch.setattr(cgroup, "ROOT", folder)

    def limit_memory(self, group: str, limit: str, used: int, cache: int = 0) -> None:
        """Fill a group of version 2; `cache` bytes of those used are pages of files."""
        folder = self.cgroups / group
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        stat = f"anon 5\ninactive_file {cache // 2}\nactive_file {cache - cache // 2}\n"
        (folder / "memory.stat").write_text(stat)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Machine:
    return Machine(monkeypatch, tmp_path)


def workers(**options: int) -> tuple[int, str]:
    found = choose_resources(ResourceOptions(**options))
    return found.num_workers, found.workers_reason


def test_workers_are_four_fifths_of_the_physical_cores(machine: Machine) -> None:
    assert workers() == (8, "80% of 10 physical cores")


@pytest.mark.parametrize(("cores", "expected"), [(5, 4), (None, 1)])
def test_a_machine_that_does_not_know_its_physical_cores_counts_logical_ones(
    cores: int | None, expected: int, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.cores = None
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    assert workers() == (expected, f"80% of {cores or 1} physical cores")


def test_the_affinity_mask_limits_the_workers(machine: Machine) -> None:
    machine.affinity = {3, 7, 11, 12, 13}
    assert workers() == (4, "80% of 5 cores in the affinity mask")


@pytest.mark.parametrize(
    ("cpu_max", "expected"),
    [
        ("250000 100000\n", (2, "80% of 2.5 cores in the cgroup quota")),
        ("10000 100000\n", (1, "80% of 0.1 cores in the cgroup quota")),
        ("9900000 100000\n", (8, "80% of 10 physical cores")),
        ("max 100000\n", (8, "80% of 10 physical cores")),
        ("", (8, "80% of 10 physical cores")),
        ("some text\n", (8, "80% of 10 physical cores")),
        ("1000 0\n", (8, "80% of 10 physical cores")),
    ],
)
def test_the_cgroup_quota_limits_the_workers(
    machine: Machine, cpu_max: str, expected: tuple[int, str]
) -> None:
    machine.cpu_max.write_text(cpu_max)
    assert workers() == expected


@pytest.mark.parametrize(
    ("available", "options", "expected"),
    [
        (64_000_000_000, ResourceOptions(), 1_500_000_000),
        (2_000_000_000, ResourceOptions(), 1_000_000_000),
        (2_000_000_000, ResourceOptions(memory=8_000_000_000), 8_000_000_000),
    ],
    ids=["much", "half of little", "as the user says"],
)
def test_memory_is_at_most_half_of_what_is_free(
    machine: Machine, available: int, options: ResourceOptions, expected: int
) -> None:
    machine.available = available
    assert choose_resources(options).memory_bytes == expected


def memory() -> int:
    return choose_resources(ResourceOptions()).memory_bytes


def test_memory_is_half_of_what_a_cgroup_leaves(machine: Machine) -> None:
    machine.limit_memory("", "2000000000", used=1_600_000_000, cache=400_000_000)
    assert memory() == 400_000_000


def test_the_tightest_of_nested_cgroups_counts(machine: Machine) -> None:
    machine.own.write_text("0::/batch/job/step\n")
    machine.limit_memory("batch", "max", used=50_000_000_000)
    machine.limit_memory("batch/job", "3000000000", used=2_000_000_000)
    machine.limit_memory("batch/job/step", "3000000000", used=1_000_000_000)
    machine.limit_memory("batch/job/other", "1000", used=1000)
    assert memory() == 500_000_000


def test_a_container_that_sees_the_path_of_its_host_reads_its_own_group(machine: Machine) -> None:
    machine.own.write_text("0::/system.slice/docker-1.scope\n")
    machine.limit_memory("", "2000000000", used=1_000_000_000)
    assert memory() == 500_000_000


def test_a_cgroup_of_version_1_limits_the_memory(machine: Machine) -> None:
    machine.own.write_text("9:cpu,cpuacct:/\n4:memory:/job\n")
    folder = machine.cgroups / "memory/job"
    folder.mkdir(parents=True)
    (folder / "memory.limit_in_bytes").write_text("2000000000\n")
    (folder / "memory.usage_in_bytes").write_text("1500000000\n")
    (folder / "memory.stat").write_text("total_inactive_file 500000000\ntotal_active_file 0\n")
    assert memory() == 500_000_000


def test_a_cgroup_that_is_used_up_leaves_the_least_budget(machine: Machine) -> None:
    machine.limit_memory("", "1000000000", used=1_000_001_000)
    assert memory() == 128_000_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *(("stat", text) for text in (b"", b"inactive_file\nactive_file x\n", b"\xff\xfe\n")),
        *(("own", text) for text in (b"", b"nonsense\n", b"1:\n", b"0::/\xff\xfe\n")),
    ],
)
def test_what_a_cgroup_does_not_say_leaves_the_limit_of_the_root(
    machine: Machine, name: str, content: bytes
) -> None:
    """Its own path may be unknown, and what of its memory is cache."""
    machine.limit_memory("", limit="3000000000", used=1_000_000_000)
    path = machine.own if name == "own" else machine.cgroups / "memory.stat"
    path.write_bytes(content)
    assert memory() == 1_000_000_000


def test_a_quota_of_an_outer_cgroup_limits_the_workers(machine: Machine) -> None:
    machine.own.write_text("0::/batch/job\n")
    (machine.cgroups / "batch/job").mkdir(parents=True)
    (machine.cgroups / "batch/cpu.max").write_text("250000 100000\n")
    assert workers() == (2, "80% of 2.5 cores in the cgroup quota")


def test_a_worker_and_the_main_process_share_the_memory_alike(machine: Machine) -> None:
    found = choose_resources(ResourceOptions(workers=3, memory=4_000_000_000, prefetch=5))
    assert found == Resources(3, "--workers", 4_000_000_000, 5)
    assert found.worker_bytes == 1_000_000_000
    assert found.batch_bytes == MAX_BATCH_BYTES
    assert found.cache_bytes == 500_000_000


@settings(deadline=None)
@given(st.integers(1, 512), st.integers(512 << 20, 1 << 42))
def test_shares_of_the_memory_stay_within_it(num_workers: int, memory: int) -> None:
    found = Resources(num_workers, "", memory, 2)
    assert found.worker_bytes * (num_workers + 1) <= memory
    assert found.cache_bytes <= found.worker_bytes
    assert MIN_BATCH_BYTES <= found.batch_bytes <= MAX_BATCH_BYTES
