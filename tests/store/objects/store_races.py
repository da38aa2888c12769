"""Races for names in a store: of many racers that create one name, one wins and all learn it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokenmill.store.objects.object_store import ObjectStore
from tokenmill.store.objects.opening import open_store


def race(open_racer: Callable[[], ObjectStore], racers: Sequence[str], names: list[str]) -> Counter:
    """Let racers, as threads, create every name at the same time; how many won each name."""
    barrier = threading.Barrier(len(racers))

    def won(racer: str) -> list[str]:
        store = open_racer()
        found = []
        for name in names:
            barrier.wait()
            if store.create(name, racer.encode(), durable=False) == racer.encode():
                found.append(name)
        return found

    with ThreadPoolExecutor(len(racers)) as pool:
        return sum((Counter(found) for found in pool.map(won, racers)), Counter())


def assert_each_is_won_once(wins: Counter, names: list[str]) -> None:
    assert {name: wins[name] for name in names} == dict.fromkeys(names, 1)


def race_of_processes(location: str, num_processes: int, num_threads: int, num_names: int) -> None:
    """Processes of several threads race; each name must be won exactly once among all of them."""
    names = [f"work/claims/{number:05d}.0" for number in range(num_names)]
    command = [sys.executable, __file__, location, str(num_names)]
    processes = []
    for process in range(num_processes):
        racers = [f"racer-{process}-{thread}" for thread in range(num_threads)]
        processes.append(
            subprocess.Popen(
                [*command, *racers],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for process in processes:  # all have imported everything
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in processes]
    wins = sum((Counter(json.loads(answer)) for answer in answers), Counter())
    assert_each_is_won_once(wins, names)


def main(location: str, num_names: str, *racers: str) -> None:
    """A process of the race: waits for a line, then prints the names that its threads won."""
    store = open_store(location)
    names = [f"work/claims/{number:05d}.0" for number in range(int(num_names))]
    store.read("ready")
    print("ready", flush=True)
    sys.stdin.readline()
    print(json.dumps(race(lambda: store, racers, names)))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    main(*sys.argv[1:])
