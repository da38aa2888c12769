"""Claims under kills, stops, late listings and skewed clocks: every item is done in the end."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_store import MemoryStore
from simulated_agents import Cluster, Costs, items_named

from tokenmill.core.errors import DamagedInputError, EngineError, InternalError
from tokenmill.run.journal.agents import new_agent, place_of
from tokenmill.run.journal.claims import Claims, claim_name
from tokenmill.run.launch import AgentShare

UNIT_SECONDS = 10.0
TAKE_OVER_SECONDS = 60 + 20 + 2
"""Three looks, one begun look before them, and the next question to the store."""


def all_taken(claims: Claims) -> list[str]:
    taken = []
    while item := claims.take():
        taken.append(item)
        claims.finished(item)
    return taken


def agent_claims(store: MemoryStore, items: list[str], index: int, count: int) -> Claims:
    share = AgentShare(index, count)
    return Claims(store, new_agent(share), items, lambda: 0.0, share=share)


class TestOrder:
    def test_one_agent_takes_all_items_in_order_without_a_listing(self) -> None:
        store, items = MemoryStore(), items_named(5)
        claims = Claims(store, new_agent(None), items, lambda: 0.0)
        lists = store.requests["list"]
        assert all_taken(claims) == items
        assert claims.exhausted
        assert not claims.waiting_for
        assert store.requests["list"] == lists

    def test_items_are_dealt_so_that_all_agents_begin_with_the_first(self) -> None:
        store, items = MemoryStore(), ["a", "b", "c", "d", "e"]
        first, second = (agent_claims(store, items, index, 2) for index in range(2))
        assert [first.take(), second.take(), first.take(), second.take()] == ["a", "b", "c", "d"]
        assert (first.take(), second.take()) == ("e", None)

    def test_a_plain_build_that_joins_agents_takes_what_is_left(self) -> None:
        store, items = MemoryStore(), items_named(30)
        store.replace("work/agents/00000-00000000.json", b"{}")
        other = "00000-00000000"
        others = Claims(store, other, items, lambda: 0.0, share=AgentShare(0, 1))
        for _ in range(10):
            others.take()
        joined = Claims(store, new_agent(None), items, lambda: 0.0)
        assert sorted(all_taken(joined)) == items[10:]
        assert not joined.exhausted

    def test_what_was_done_before_is_not_taken(self) -> None:
        claims = Claims(MemoryStore(), new_agent(None), ["a", "b", "c"], lambda: 0.0)
        claims.refresh({"b"})
        assert all_taken(claims) == ["a", "c"]
        assert claims.exhausted
        assert not claims.waiting_for

    def test_whoever_runs_alone_takes_what_any_other_held(self) -> None:
        store, items = MemoryStore(), items_named(4)
        agent_claims(store, items, 0, 1).take()
        alone = Claims(store, new_agent(None), items, lambda: 0.0, alone=True)
        assert all_taken(alone) == items

    def test_the_next_life_of_a_place_takes_its_items_at_once(self) -> None:
        store, items, life = MemoryStore(), items_named(4), "00000-00000001"
        store.replace(f"work/agents/{life}.json", b"{}")
        Claims(store, life, items, lambda: 0.0, share=AgentShare(0, 1)).take()
        assert all_taken(agent_claims(store, items, 0, 1)) == items
        assert claim_name(items[0], 1) in store.objects

    def test_a_claim_that_cannot_be_read_has_an_owner_that_stays_silent(self) -> None:
        store, now = MemoryStore(), [0.0]
        store.create(claim_name("a", 0), b"\xff not json")
        claims = Claims(store, new_agent(None), ["a"], lambda: now[0])
        for _ in range(5):
            assert claims.take() is None
            claims.refresh(())
            now[0] += 20
        assert claims.take() == "a"


class TestDuplicates:
    @given(st.integers(0, 60), st.integers(1, 9), st.integers(1, 4), st.integers(0, 2**32))
    @settings(max_examples=60, deadline=None)
    def test_without_failures_every_item_runs_once(
        self, num_items: int, num_agents: int, workers: int, seed: int
    ) -> None:
        chance = random.Random(seed)
        seconds = {item: chance.uniform(0.1, 40) for item in items_named(num_items)}
        cluster = Cluster(items_named(num_items), Costs(unit_seconds=seconds.__getitem__))
        for index in range(num_agents):
            skew = chance.choice((-3600.0, 0.0, 3600.0))
            begin = chance.uniform(0, 30)
            speed = chance.choice((1.0, 1.0, 3.0))
            cluster.at(
                begin,
                lambda i=index, v=speed, s=skew: cluster.start(  # type: ignore[misc]
                    i, num_agents, workers=workers, speed=v, skew=s
                ),
            )
        cluster.run()
        assert [*sorted(cluster.done)] == items_named(num_items)
        assert set(cluster.runs.values()) <= {1}

    def test_late_listings_cost_requests_only(self) -> None:
        cluster = Cluster(items_named(100), lag=30.0)
        for index in range(8):
            cluster.start(index, 8, speed=3.0 if index == 3 else 1.0)
        cluster.run()
        assert len(cluster.done) == 100
        assert set(cluster.runs.values()) == {1}


class TestTakeOver:
    def test_items_of_a_killed_agent_are_taken_in_a_minute_and_a_unit(self) -> None:
        cluster = Cluster(items_named(40))
        for index in range(4):
            cluster.start(index, 4)
        cluster.at(15.0, lambda: cluster.kill(2))
        cluster.run()
        assert len(cluster.done) == 40
        assert sum(cluster.runs.values()) == 42  # it had two workers
        no_kill = 40 * UNIT_SECONDS / 8
        assert max(cluster.done.values()) <= no_kill + TAKE_OVER_SECONDS + 2 * UNIT_SECONDS

    def test_an_agent_that_left_is_not_waited_for(self) -> None:
        store, items = MemoryStore(), ["a", "b"]
        gone = "00000-00000001"
        store.replace(f"work/agents/{gone}.json", b'{"agent": "00000-00000001", "counter": 1}')
        claims = agent_claims(store, items, 1, 2)
        Claims(store, gone, items, lambda: 0.0, share=AgentShare(0, 2)).take()
        assert [claims.take(), claims.take()] == ["b", None]

    def test_a_zombie_finds_its_items_done_and_does_no_harm(self) -> None:
        cluster = Cluster(items_named(20))
        for index in range(3):
            cluster.start(index, 3)
        cluster.at(12.0, lambda: cluster.freeze(1, 500.0))
        cluster.run()
        assert len(cluster.done) == 20
        assert len(cluster.duplicates) == 2
        assert not cluster.living

    def test_two_living_agents_of_one_place_do_not_rob_each_other_for_ever(self) -> None:
        cluster = Cluster(items_named(200))
        for begin in (0.0, 3.0):
            cluster.at(begin, lambda: cluster.start(0, 1))
        cluster.run()
        assert len(cluster.done) == 200
        assert len(cluster.duplicates) < 20

    @given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32))
    @settings(max_examples=60, deadline=None)
    def test_after_any_kills_others_finish(
        self, num_items: int, num_agents: int, seed: int
    ) -> None:
        """The last submission may have another size, and another clock."""
        chance = random.Random(seed)
        cluster = Cluster(items_named(num_items), lag=chance.choice((0.0, 30.0)))
        until = 0.0
        for _ in range(chance.randrange(1, 4)):
            count = chance.randrange(1, num_agents + 1)
            for index in range(count):
                cluster.start(index, count, skew=chance.choice((-3600.0, 0.0, 3600.0)))
                moment = until + chance.uniform(0, 60)
                if chance.random() < 0.3:
                    cluster.at(moment, lambda i=index: cluster.freeze(i, 200))  # type: ignore[misc]
            until += chance.uniform(1, 60)
            cluster.run(until)
            for index in range(count):
                cluster.kill(index)
        cluster.start(0, 1)
        cluster.run()
        assert len(cluster.done) == num_items
        assert not cluster.living

    def test_agents_beyond_the_four_lowest_leave(self) -> None:
        cluster = Cluster(
            items_named(9), Costs(unit_seconds=lambda item: 1000.0 if item[7] == "8" else 1.0)
        )
        for index in range(8):
            cluster.start(index, 8, workers=1)
        cluster.run(900)
        assert [place_of(node.agent) for node in cluster.living] == [
            "00000",
            "00001",
            "00002",
            "00003",
        ]
        cluster.run()
        assert len(cluster.done) == 9


class TestFailures:
    def test_an_item_that_fails_on_two_agents_is_parked_and_the_others_are_done(self) -> None:
        cluster = Cluster(items_named(30))
        cluster.poison = ["00000007-000000"]
        for index in range(4):
            cluster.start(index, 4)
        cluster.run()
        assert len(cluster.done) == 29
        assert cluster.runs["00000007-000000"] == 2
        complete = [node for node in cluster.nodes if node.ended == "complete"]
        assert [[*node.claims.parked] for node in complete] == [["00000007-000000"]] * len(complete)

    def test_an_agent_alone_does_not_try_again(self) -> None:
        cluster = Cluster(items_named(5))
        cluster.poison = ["00000002-000000"]
        cluster.start(0, 1)
        cluster.run()
        assert cluster.runs["00000002-000000"] == 1
        assert cluster.nodes[0].ended == "complete"

    @pytest.mark.parametrize("count", [1, 2, 3])
    def test_failures_of_an_earlier_submission_do_not_count(self, count: int) -> None:
        cluster = Cluster(items_named(12))
        cluster.poison = ["00000002-000000"]
        for index in range(3):
            cluster.start(index, 3)
        cluster.run()
        cluster.poison = []
        for index in range(count):
            cluster.start(index, count)
        cluster.run()
        assert len(cluster.done) == 12
        assert all(not node.claims.parked for node in cluster.nodes[3:])

    def test_whoever_has_finished_hears_that_another_stopped_the_build(self) -> None:
        store, items = MemoryStore(), ["a"]
        first, second = (agent_claims(store, items, index, 2) for index in range(2))
        assert all_taken(first) == ["a"]
        second.stop(InternalError("a unit that ran twice gave two different results"))
        with pytest.raises(InternalError, match="gave two different results"):
            first.heed_others()

    def test_a_note_keeps_the_kind_of_the_error(self) -> None:
        store, items = MemoryStore(), ["a"]
        error = DamagedInputError("a file is damaged", where="x.gz", why="CRC", hint="fetch it")
        for index in range(2):
            claims = agent_claims(store, items, index, 2)
            claims.failed("a", error)
        third = agent_claims(store, items, 1, 2)
        assert third.take() == "a"
        third.refresh(())
        (parked,) = third.parked.values()
        assert (type(parked), str(parked)) == (DamagedInputError, str(error))

    def test_a_note_that_cannot_be_read_is_an_error_of_the_engine(self) -> None:
        store = MemoryStore()
        for life in ("00000001", "00000002"):
            store.create(f"work/failed/a.00000-{life}.json", b"\xff")
        claims = agent_claims(store, ["a"], 1, 2)
        claims.take()
        claims.refresh(())
        assert [type(error) for error in claims.parked.values()] == [EngineError]
