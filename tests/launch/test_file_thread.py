"""Calls that take long continue once, in the thread of the caller."""

import threading

import pytest

from holdfast.apps.launch.file_thread import FileThread


def test_a_quick_call_continues_at_once() -> None:
    steps: list[str] = []
    thread = FileThread()

    thread.run(lambda: steps.append("call"), then=lambda: steps.append("then"))

    assert steps == ["call", "then"]
    assert (thread.is_busy, thread.finish()) == (False, True)


def test_a_slow_call_continues_once_after_it_has_ended() -> None:
    responds, steps = threading.Event(), []
    thread = FileThread()
    thread.run(lambda: responds.wait(60), then=lambda: steps.append(threading.current_thread()))
    assert (thread.is_busy, thread.finish(), thread.wait(0.0), steps) == (True, False, False, [])
    with pytest.raises(RuntimeError, match="busy"):
        thread.run(lambda: None)

    responds.set()
    assert thread.wait(60)

    assert thread.is_busy, "what follows the call has not run"
    assert thread.finish()
    assert thread.finish()
    assert steps == [threading.main_thread()]


def test_what_follows_a_call_may_run_another_one() -> None:
    steps: list[int] = []
    thread = FileThread()

    thread.run(lambda: steps.append(1), then=lambda: thread.run(lambda: steps.append(2)))

    assert steps == [1, 2]
    assert not thread.is_busy


def test_a_call_that_fails_is_reported_to_the_caller(monkeypatch) -> None:
    printed = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: printed.set())
    thread = FileThread()

    def fail() -> None:
        thread.run(lambda: [].clear(1))  # type: ignore[call-arg]
        thread.wait(60)
        thread.finish()

    with pytest.raises(RuntimeError, match="see above"):
        fail()
    assert printed.wait(60)
    assert thread.wait(0.0)
