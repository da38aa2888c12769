"""Simulate how long many machines take together, with claimed and with dealt items.

    python bench/cluster.py                       100 nodes, 15 T tokens
    python bench/cluster.py --nodes 10 100 1000   other numbers
    python bench/cluster.py --max-rate 3500       a store that allows this many changes per second

The agents are real: `Claims` and `Watch` of `tokenmill.run.journal`. The clock, the store (with a
latency per request and a limit on changes per second) and the units are simulated. A unit is 512
MiB of text, log-normal around 9.1 s on one core (59 MB/s, measured). One node in twenty is three
times slower. With dealt items (`static`), as in job arrays without claims, item i goes to node i
modulo n. The items of a node that dies wait for another submission, so only claims are simulated
with deaths.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "run"))

from simulated_agents import Cluster, Costs, items_named, lognormal_seconds

UNITS = 111_759
UNIT_SECONDS = 9.1
UNIT_BYTES = 512 << 20
TOKENS_A_UNIT = 134_217_728
SLOW = 3.0
PARTS = 8
REQUESTS_OF_UNIT = PARTS + 2 + 3
"""The ids in parts of 64 MiB, begun and completed; index, digests, documents table."""
PUT_DOLLARS, GET_DOLLARS = 5e-6, 0.4e-6
GET_BYTES = 16 << 20
CORE_HOUR_DOLLARS = 0.05


def main() -> None:
    """Simulate each number of nodes, with and without deaths."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=[100])
    parser.add_argument("--workers", type=int, default=32)
    parser.add_argument("--units", type=int, default=UNITS)
    parser.add_argument("--latency", type=float, default=0.03, help="seconds a request")
    parser.add_argument("--max-rate", type=float, default=0.0, help="changes a second; 0: any")
    parser.add_argument("--deaths", type=float, default=0.05, help="share of nodes that die")
    options = parser.parse_args()
    print(
        f"{options.units:,} units of {UNIT_SECONDS} s, {options.workers} workers a node, "
        f"{options.latency * 1000:.0f} ms a request, "
        + (f"{options.max_rate:,.0f} changes/s at most" if options.max_rate else "no limit of rate")
    )
    print("nodes  ideal s  static  claims  with deaths  twice  PUT/s  M PUT  M GET  CPU s")
    for nodes in options.nodes:
        begun = time.process_time()
        ideal = options.units * UNIT_SECONDS / (nodes * options.workers)
        alive = simulate(options, nodes, 0)
        dying = simulate(options, nodes, round(nodes * options.deaths))
        end = max(alive.done.values())
        reads = alive.store.requests["read"] + alive.store.requests["page"]
        gets = reads + options.units * UNIT_BYTES / GET_BYTES
        print(
            f"{nodes:>5}  {ideal:>7,.0f}  {static_seconds(options, nodes) / ideal:>5.2f}x"
            f"  {end / ideal:>5.2f}x  {max(dying.done.values()) / ideal:>10.2f}x"
            f"  {len(alive.duplicates):>5}  {alive.changes / end:>5,.0f}"
            f"  {alive.changes / 1e6:>5.2f}  {gets / 1e6:>5.2f}"
            f"  {time.process_time() - begun:>5.0f}"
        )
        requests = alive.changes * PUT_DOLLARS + gets * GET_DOLLARS
        hours = end * nodes * options.workers / 3600
        print(
            f"       {options.units * TOKENS_A_UNIT / 1e12:.1f} T tokens in {end / 60:.1f} min; "
            f"requests ${requests:.2f}; {hours:,.0f} core hours, "
            f"${hours * CORE_HOUR_DOLLARS:.0f} at ${CORE_HOUR_DOLLARS} each",
            flush=True,
        )


def simulate(options: argparse.Namespace, nodes: int, deaths: int) -> Cluster:
    """All units on so many nodes, of which some die while they work."""
    chance = random.Random(nodes)
    costs = Costs(
        unit_seconds=lognormal_seconds(UNIT_SECONDS, 0.15, 0),
        latency=options.latency,
        requests_of_unit=REQUESTS_OF_UNIT,
        max_rate=options.max_rate,
    )
    cluster = Cluster(items_named(options.units), costs)
    for node in range(nodes):
        cluster.at(
            5 + 2 * chance.random(),
            lambda n=node: cluster.start(n, nodes, workers=options.workers, speed=speed_of(n)),
        )
    ideal = options.units * UNIT_SECONDS / (nodes * options.workers)
    for node in chance.sample(range(nodes), deaths):
        cluster.at(chance.uniform(0.1, 0.96) * ideal, lambda n=node: cluster.kill(n))
    cluster.run()
    if len(cluster.done) != options.units:
        raise SystemExit(f"only {len(cluster.done):,} of {options.units:,} units were done")
    return cluster


def static_seconds(options: argparse.Namespace, nodes: int) -> float:
    """When the last node has done the items dealt to it."""
    seconds = lognormal_seconds(UNIT_SECONDS, 0.15, 0)
    totals = [0.0] * nodes
    for index, item in enumerate(items_named(options.units)):
        totals[index % nodes] += seconds(item) * speed_of(index % nodes)
    return 6 + max(totals) / options.workers


def speed_of(node: int) -> float:
    """One node in twenty is slow."""
    return SLOW if (node * 7 + 3) % 20 == 0 else 1.0


if __name__ == "__main__":
    main()
