import math
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.client.errors import ApiError, Unreachable, api_error
from holdfast.adapters.kubernetes.client.periodic import (
    BACKOFF,
    PeriodicTask,
)

EVERY_S = 300.0


class World:
    """A duty, its clock, and what it meets."""

    def __init__(self, every_s: float = EVERY_S) -> None:
        self.now = 1000.0
        self.error: Exception | None = None
        self.said: list[str] = []
        self.done = 0
        self.takes_s = 0.0
        self.asked_meanwhile: float | None = None
        self.task = PeriodicTask(
            "do it", self.act, every_s=every_s, log=self.said.append, clock=lambda: self.now
        )

    def act(self) -> None:
        self.now += self.takes_s
        if self.asked_meanwhile is not None:
            self.task.requeue_now(self.asked_meanwhile)
        if self.error is not None:
            raise self.error
        self.done += 1

    @property
    def pause_s(self) -> float:
        return self.task.due_at - self.now


def refusal(status: int, after: timedelta | None = None) -> ApiError:
    seconds = None if after is None else str(int(after.total_seconds()))
    return api_error("GET /x", status, b"{}", seconds)


def test_nothing_is_due_until_it_is_asked_for() -> None:
    world = World()
    assert world.task.due_at == math.inf

    world.task.requeue_now(5.0)
    world.task.requeue_now(7.0)

    assert world.task.due_at == 5.0


def test_it_is_done_again_in_time_and_sooner_if_asked() -> None:
    world = World()
    world.task.run()
    assert world.pause_s == EVERY_S

    world.task.requeue_now(world.now + 1)
    assert world.pause_s == 1

    world.task.run()
    assert (world.pause_s, world.done, world.said) == (EVERY_S, 2, [])


@pytest.mark.parametrize("is_failing", [False, True])
def test_what_is_asked_for_while_it_is_done_is_not_forgotten(is_failing) -> None:
    world = World()
    if is_failing:
        world.error = Unreachable("away")
        world.task.run()
        world.error = None
    world.asked_meanwhile = world.now

    world.task.run()

    assert world.task.due_at <= world.now


@given(st.lists(st.sampled_from([500, 403, 404, 409, 429]), min_size=1, max_size=20))
def test_pauses_grow_to_their_longest_and_news_does_not_shorten_them(statuses) -> None:
    world = World()
    for number, status in enumerate(statuses):
        world.error = refusal(status)
        world.takes_s = 3.0
        world.task.run()
        world.task.requeue_now(world.now)

        longest = BACKOFF.delay(number + 1).total_seconds()
        assert longest / 2 <= world.pause_s <= longest


def test_after_a_success_pauses_begin_anew() -> None:
    world = World()
    for error in [Unreachable("away")] * 9 + [None]:
        world.error = error
        world.task.run()
    assert world.pause_s == EVERY_S

    world.error = Unreachable("away")
    world.task.run()

    assert world.pause_s <= BACKOFF.first.total_seconds()


def test_a_server_that_says_when_to_come_again_is_obeyed() -> None:
    world = World()
    world.error = refusal(429, timedelta(seconds=120))

    world.task.run()

    assert world.pause_s == 120


def test_a_person_is_notified_once_of_each_trouble_and_of_its_end() -> None:
    world = World()
    for error in (Unreachable("a"), Unreachable("a"), Unreachable("b"), None, None):
        world.error = error
        world.task.run()

    assert world.said == [
        "cannot do it: a; retrying",
        "cannot do it: b; retrying",
        "do it: succeeded again",
    ]


def test_a_mistake_of_ours_is_not_hidden() -> None:
    world = World()
    world.error = KeyError("x")

    with pytest.raises(KeyError):
        world.task.run()
