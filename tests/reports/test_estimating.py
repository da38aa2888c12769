"""The time left of simulated runs, whose true end is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenmill.reports.estimating import MAX_POINTS, History, Remaining, remaining

TOTAL = 300.0
Speed = Callable[[float, float, float], float]
"""Bytes a second, from the time, the share that is done, and a random number around 1."""


def steady(time: float, share: float, noise: float) -> float:
    return noise


def slow_start(time: float, share: float, noise: float) -> float:
    return noise * min(time / 20, 1)


def dead_start(time: float, share: float, noise: float) -> float:
    return noise if time > 10 else 0


def straggler(time: float, share: float, noise: float) -> float:
    return noise if share < 0.97 else noise / 4


def simulated(speed: Speed, seed: int, noise: float) -> tuple[list[float], list[float]]:
    """Times and bytes of a run that reports every two seconds."""
    random = np.random.default_rng(seed)
    times, done = [0.0], [0.0]
    while done[-1] < TOTAL:
        now = max(speed(times[-1], done[-1] / TOTAL, random.normal(1, noise)), 0)
        step = min(2.0, (TOTAL - done[-1]) / now) if now else 2.0
        times.append(times[-1] + step)
        done.append(done[-1] + now * step)
    return times, done


def estimates(speed: Speed, noise: float = 0.2) -> Iterator[tuple[Remaining, float, float]]:
    """Estimates from a tenth on, each with the true time left and the time of the whole run."""
    for seed in range(10):
        times, done = simulated(speed, seed, noise)
        for at in range(2, len(times) - 1):
            if done[at] >= TOTAL / 10:
                longest = 0.0
                if speed is straggler:  # one unit of 3 % that runs at a quarter of the speed
                    longest = (times[-1] - times[at]) if done[at] >= 0.97 * TOTAL else 36.0
                left = remaining(times[: at + 1], done[: at + 1], TOTAL, longest)
                assert left is not None
                yield left, times[-1] - times[at], times[-1]


@pytest.mark.parametrize("speed", [steady, slow_start, dead_start, straggler])
def test_from_a_tenth_on_the_end_is_known_within_a_fifth_of_the_whole_time(speed: Speed) -> None:
    for left, truth, whole in estimates(speed):
        assert abs(left.seconds - truth) <= 0.2 * whole


@pytest.mark.parametrize("noise", [0.1, 0.3, 0.6])
def test_the_end_lies_in_the_interval_in_more_than_eight_of_ten_cases(noise: float) -> None:
    inside = [
        left.least <= truth and (left.most is None or truth <= left.most)
        for left, truth, _ in estimates(steady, noise)
    ]
    assert np.mean(inside) > 0.8


def test_the_time_before_the_first_progress_does_not_count() -> None:
    left = remaining([0, 10, 20, 30, 40], [0, 0, 10, 20, 30], 100)
    assert left == Remaining(
        pytest.approx(70), pytest.approx(70 / 1.146), pytest.approx(70 / 0.854)
    )


def test_two_points_say_nothing_about_how_the_speed_varies() -> None:
    assert remaining([0, 10], [0, 10], 30) == Remaining(20, 10, None)


def test_a_run_does_not_end_before_its_last_unit() -> None:
    times, done = [0, 10, 20, 30], [0, 10, 20, 30]
    assert remaining(times, done, 40, longest_unit=5).seconds == pytest.approx(10)  # type: ignore[union-attr]
    assert remaining(times, done, 40, longest_unit=50).seconds == pytest.approx(50)  # type: ignore[union-attr]


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 1e9)), max_size=40), st.floats(0, 1e12))
def test_estimates_are_ordered_whatever_was_reported(
    steps: list[tuple[float, float]], total: float
) -> None:
    times = np.cumsum([0.0, *(seconds for seconds, _ in steps)]).tolist()
    done = np.cumsum([0.0, *(num_bytes for _, num_bytes in steps)]).tolist()
    left = remaining(times, done, total)
    if left is None:
        return
    assert 0 <= left.least <= left.seconds
    assert left.most is None or left.seconds <= left.most


def test_attempts_before_a_restart_do_not_count() -> None:
    history = History()
    for at in range(10):
        history.add(at * 10, at * 100, 0, "first")
    history.add(200, 400, 0, "second")
    assert history.remaining(1000) is None
    for at in range(1, 5):
        history.add(200 + at * 10, 400 + at * 10, 0, "second")
    assert history.remaining(1000).seconds == pytest.approx(560)  # type: ignore[union-attr]
    assert history.curve(2) == [pytest.approx(1), pytest.approx(1)]
    assert history.late() == (pytest.approx(1), 0)


def test_lost_work_starts_anew_and_late_reports_replace_the_last() -> None:
    history = History()
    for at, done in ((0, 0), (10, 50), (20, 40), (30, 60), (29, 70)):
        history.add(at, done, 2 * done)
    assert list(history.points) == [(20, 40, 80), (30, 70, 140)]


def test_memory_is_bounded() -> None:
    history = History()
    for at in range(MAX_POINTS + 100):
        history.add(at, at, at)
    assert len(history.points) == MAX_POINTS
    assert history.seconds == MAX_POINTS - 1
    assert history.curve(50) == [pytest.approx(1)] * 50
