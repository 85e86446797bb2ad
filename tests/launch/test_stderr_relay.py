"""The thread that relays the standard error of ranks."""

import os
import threading
from contextlib import suppress

import pytest
from launch.launched import wait_for

from holdfast.apps.launch.stderr_relay import StderrRelay


def test_the_thread_shows_all_and_ends_before_the_launcher(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = {*threading.enumerate()}
    with StderrRelay() as relay:
        with relay.open(0) as rank:
            rank.write(b"one\n")
        assert {*threading.enumerate()} > before
        with relay.open(1) as rank:
            rank.write(b"two\n")
        relay.end_round()

    assert {*threading.enumerate()} == before
    assert sorted(capfd.readouterr().err.split()) == ["one", "two"]


def test_the_thread_ends_although_nobody_reads_what_ranks_have_written() -> None:
    before = {*threading.enumerate()}
    reader, writer = os.pipe2(os.O_NONBLOCK)
    kept = os.dup(2)
    os.dup2(writer, 2)
    try:
        with suppress(BlockingIOError):
            while True:
                os.write(writer, bytes(4096))
        with StderrRelay() as relay:
            with relay.open(0) as rank:
                rank.write(b"one\n")
            relay.end_round()
        wait_for(lambda: {*threading.enumerate()} == before, "the end of the thread")
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, reader, writer):
            os.close(descriptor)
