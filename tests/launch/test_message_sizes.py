"""Messages of large jobs: one that is too long would end the connection, and with it the ranks."""

import json
import socket
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast.adapters.launch.channel import Channel
from holdfast.adapters.launch.messages import (
    event_message,
    order_message,
    read_event,
    read_order,
)
from holdfast.apps.launch.rank_inspection import bounded_kernel, bounded_snapshots
from holdfast.decisions.flight_recorder import RankTrace
from holdfast.decisions.hang_verdict import Verdict, VerdictKind
from holdfast.decisions.kernel_lines import NodeKernelLog
from holdfast.decisions.launch_events import Inspected, Joined, Member, NodeFault
from holdfast.decisions.launch_orders import order_for
from holdfast.decisions.launch_rounds import advance
from holdfast.decisions.launch_state import JobRounds, Outcome, RoundSettings
from holdfast.decisions.rank_snapshots import RankSnapshot
from holdfast.decisions.ras_verdict import RasCommunicator, RasRank, ras_verdict
from holdfast.kit.serial import to_plain

KEY = b"0123456789abcdef"
RANKS = 16_384
SNAPSHOT = RankSnapshot(rank=1, node="gpu-1", pid=4711)


def transferred(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message that a launcher and its coordinator have exchanged."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        left = socket.create_connection(listener.getsockname())
        right, _ = listener.accept()
    sender, receiver = Channel(left, KEY, is_server=False), Channel(right, KEY, is_server=True)
    with left, right:
        sender.send(message)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            sender.receive()
            sender.flush()
            if found := receiver.receive():
                return found[0]
            time.sleep(0.001)
    raise AssertionError("no message")


def filled(make: Callable[[str], tuple[Any, ...]], size: int) -> tuple[Any, ...]:
    """Return a value whose JSON has ``size`` characters."""
    return make("x" * (size - len(json.dumps(to_plain(make(""))))))


def ras(*, is_missing: bool) -> Verdict:
    """Return the verdict if all ranks but the last one do not respond, or are behind it."""
    ranks = tuple(
        RasRank(
            rank=rank,
            pid=4711 if rank == 1 else 0,
            is_missing=is_missing and rank < RANKS - 1,
            counts={"Broadcast": 1 + (rank == RANKS - 1)},
        )
        for rank in range(RANKS)
    )
    known = (RasCommunicator(size=RANKS, ranks=ranks),)
    found = ras_verdict(known, known, [SNAPSHOT])
    assert found is not None
    return found


@pytest.mark.parametrize("is_missing", [True, False])
def test_the_largest_inspection_of_a_large_job_fits_into_one_message(is_missing: bool) -> None:
    snapshots = filled(lambda x: (RankSnapshot(rank=1, node="n", pid=1, note=x),), 42_000)
    kernel = filled(lambda x: (NodeKernelLog(node="gpu-1", note=x),), 6_000)
    event = Inspected(
        launcher="gpu-1-4711-0a1b2c" * 4,
        round=1000,
        number=3,
        is_stalled=True,
        snapshots=bounded_snapshots(snapshots),
        traces=filled(
            lambda x: (RankTrace(rank=0, collectives=(), members={x: frozenset()}),), 14_000
        ),
        ras=ras(is_missing=is_missing),
        kernel=bounded_kernel(kernel),
    )
    assert (event.snapshots, event.kernel) == (snapshots, kernel)

    assert read_event(transferred(event_message(event))) == event


def test_a_verdict_of_ras_counts_all_ranks_that_are_behind() -> None:
    found = ras(is_missing=False)

    assert found.kind is VerdictKind.ABSENT
    assert found.ranks[:3] == (0, 1, 2)
    assert found.text.startswith(
        "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 16375 more have begun 1, 1, 1, 1 "
    )


def test_the_last_order_fits_into_one_message_though_all_nodes_are_being_repaired() -> None:
    config, now = RoundSettings(nodes=1000), datetime(2026, 1, 1, tzinfo=UTC)
    job = JobRounds(since=now, floor=1)
    fault = NodeFault(text="Xid 79: " + "é" * 192, is_urgent=True)
    for number in range(1000):
        member = Member(name=f"n{number}", address="", port=1, slots=8, fault=fault)
        job = advance(job, Joined(member=member), now, config)
    job = advance(job, None, now + config.join_timeout, config)
    assert job.outcome is Outcome.FAILED

    order = order_for(job, "n1")

    assert read_order(transferred(order_message(order))) == order
    assert order.why.startswith("timed out: 0 of 1000 launchers joined; n0 is being repaired: Xid ")
    assert order.why.endswith("; 984 more nodes are being repaired")
