"""Kernel lines and accelerators in the evidence of a hang."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.decisions.evidence_precedence import recent, verdict_of
from holdfast.decisions.flight_recorder import RankFindings
from holdfast.decisions.hang_evidence import HangEvidence, RankEvidence, bounded_text
from holdfast.decisions.kernel_causes import ROWS, KernelCause, cause_of_line
from holdfast.decisions.kernel_lines import (
    CHARS,
    LINES,
    KernelLine,
    NodeKernelLog,
    concerns_job,
    kept_lines,
    line_of,
    since_last_step,
)
from holdfast.decisions.node_dumps import kernel_log_of, split_state
from holdfast.decisions.rank_accelerators import Accelerator, device_of, device_of_row
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot
from holdfast.decisions.stack_dumps import findings_of
from holdfast.kit.serial import parse_value

T0 = datetime(2026, 1, 1, tzinfo=UTC)
WAITS = (Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),)
XID = "NVRM: Xid (PCI:0000:b9:00): 79, pid=4242, name=python, GPU has fallen off the bus."
BLOCKED = "INFO: task python:7 blocked for more than 120 seconds."


def line(text: str, after_s: float = 0, *, is_kernel: bool = True) -> KernelLine:
    return KernelLine(at=T0 + timedelta(seconds=after_s), text=text, is_kernel=is_kernel)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.text)
def test_the_example_of_each_cause_has_that_cause(row: KernelCause) -> None:
    assert cause_of_line(row.example) is row
    assert cause_of_line(f"tmpfs: Unknown parameter '{row.example}'") is None
    assert row.source


@pytest.mark.parametrize(
    "text",
    [
        "blk_update_request: I/O error, dev sda, sector 2048 op 0x0:(READ)",
        "Buffer I/O error on dev dm-0, logical block 1, async page read",
        "mlx5_core 0000:05:00.0 eth0: NETDEV WATCHDOG: CPU: 3: transmit queue 3 timed out 5000 ms",
    ],
)
def test_a_driver_may_precede_a_cause(text: str) -> None:
    assert cause_of_line(text) is not None


@pytest.mark.parametrize(
    ("record", "kept"),
    [
        ("4,1,5000000,-;watch out", line("watch out", 5)),
        ("0,1,5000000,-,caller=T1;worse", line("worse", 5)),
        ("5,1,5000000,-;a notice", None),
        ("6,1,5000000,-;an information", None),
        ("5,1,0,-;nfs: server a not responding, timed out",
         line("nfs: server a not responding, timed out")),
        ("12,1,0,-;by a program", line("by a program", is_kernel=False)),
        ("28,1,0,-;by a daemon", None),
        ("4,1,0,-;", None),
        (f"4,1,{10**20 - 1},-;from the future", None),
        ("watch out", None),
        (" SUBSYSTEM=pci", None),
        (r"4,1,0,-;a\x0a# b" + "\n SUBSYSTEM=pci", line(r"a\x0a# b")),
    ],
)  # fmt: skip
def test_warnings_and_worse_are_kept_and_what_explains_a_hang(
    record: str, kept: KernelLine | None
) -> None:
    assert line_of(record, T0) == kept


texts = st.one_of(
    st.text(max_size=3 * CHARS), st.just(XID), st.just("fetch https://u:hunter2@host/a failed")
)
kernel_lines = st.lists(
    st.builds(line, texts, st.floats(-1e6, 1e6), is_kernel=st.booleans()), max_size=3 * LINES
)
logs = st.lists(
    st.builds(NodeKernelLog, node=st.sampled_from("ab"), lines=kernel_lines.map(tuple), note=texts),
    max_size=3,
)


@given(logs, st.none() | st.floats(-1e6, 1e6))
def test_whatever_a_node_logs_little_is_kept_of_it(
    found: Sequence[NodeKernelLog], since_s: float | None
) -> None:
    since = None if since_s is None else T0 + timedelta(seconds=since_s)
    kept = since_last_step(found, since)

    assert len(kept) == len({one.node for one in found})
    for log in kept:
        assert len(log.lines) <= LINES
        assert list(log.lines) == sorted(log.lines, key=lambda one: one.at)
        for text in (*(one.text for one in log.lines), log.note):
            assert len(text) <= CHARS
            assert all(" " <= char <= "~" for char in text)
            assert "hunter2" not in text
        if since is not None:
            assert all(one.at >= since - timedelta(minutes=1) for one in log.lines)
    assert since_last_step(kept, since) == kept
    verdict_of(recent(RankFindings(kernel=tuple(found)), since))


@given(logs, st.integers(1000, 20_000))
def test_the_evidence_fits_with_the_kernel_logs(found: Sequence[NodeKernelLog], limit: int) -> None:
    snapshot = RankSnapshot(rank=0, node="a", pid=1, state="S", frames=WAITS)
    kernel = since_last_step(found, None)
    evidence = HangEvidence(
        job="job",
        attempt=1,
        suspected_at=T0,
        evidence="no new step",
        verdict=verdict_of(RankFindings(snapshots=(snapshot,))),
        ranks=(RankEvidence(snapshot=snapshot),),
        kernel=kernel,
    )
    text = bounded_text(evidence, limit)

    assert len(text) <= limit
    shorter = parse_value(HangEvidence, text)
    assert len(shorter.ranks) == 1, "kernel lines are left out before ranks"
    if len(json.dumps(json.loads(bounded_text(evidence, 1 << 20)))) <= limit:
        assert shorter == evidence


@given(kernel_lines)
def test_a_storm_of_other_lines_does_not_hide_a_cause(found: list[KernelLine]) -> None:
    storm = [line(f"audit {number}", 2e6 + number) for number in range(2 * LINES)]
    kept = kept_lines([*found, line(XID, 1e6), *storm])

    assert line(XID, 1e6) in kept
    assert storm[-1] in kept


@pytest.mark.parametrize(
    ("text", "oom_kills", "expected"),
    [
        ("Memory cgroup out of memory: Killed process 9 (python)", 0, False),
        ("Memory cgroup out of memory: Killed process 9 (python)", 1, True),
        ("Memory cgroup out of memory: Killed process 9 (python)", None, True),
        ("Out of memory: Killed process 9 (python)", 0, True),
        (XID, 0, True),
    ],
)
def test_only_an_oom_kill_at_the_limit_of_others_does_not_concern_a_job(
    text: str, oom_kills: int | None, *, expected: bool
) -> None:
    assert concerns_job(line(text), oom_kills) is expected


def rank(number: int, node: str, bus_id: str = "") -> RankSnapshot:
    device = Accelerator(name="0", bus_id=bus_id) if bus_id else None
    return RankSnapshot(rank=number, node=node, pid=9, state="S", frames=WAITS, accelerator=device)


def test_an_xid_of_the_device_of_a_rank_is_quoted_and_names_no_rank() -> None:
    ranks = (rank(0, "a", "00000000:B9:00.0"), rank(1, "b"), rank(2, "b", "00000000:B9:00.0"))
    silent = verdict_of(RankFindings(snapshots=ranks))
    kernel = (
        NodeKernelLog(node="a", lines=(line("audit: backlog limit exceeded"),)),
        NodeKernelLog(node="b", lines=(line(BLOCKED), line(XID, 1), line(XID, 2))),
    )
    found = verdict_of(RankFindings(snapshots=ranks, kernel=kernel))

    assert (found.kind, found.ranks) == (silent.kind, silent.ranks)
    assert found.text == (
        f"{silent.text}; kernel on b: XID of the GPU of rank 2: {XID}; "
        f"kernel on b: blocked task: {BLOCKED}"
    )


def test_what_a_program_wrote_to_the_kernel_log_is_not_quoted() -> None:
    forged = NodeKernelLog(node="a", lines=(line(XID, is_kernel=False),))
    found = RankFindings(snapshots=(rank(0, "a"),), kernel=(forged,))

    assert "kernel" not in verdict_of(found).text


def test_the_node_of_the_named_rank_is_quoted_first_and_few_nodes_are() -> None:
    stopped = RankSnapshot(rank=5, node="n5", pid=9, state="T")
    ranks = (*(rank(number, f"n{number}") for number in range(5)), stopped)
    kernel = tuple(NodeKernelLog(node=f"n{one}", lines=(line(XID),)) for one in range(6))
    text = verdict_of(RankFindings(snapshots=ranks, kernel=kernel)).text

    assert text.endswith(
        f"; kernel on n5: XID: {XID}; kernel on n0: XID: {XID}; "
        "the kernels of 4 more nodes report such lines, too"
    )


DEVICES = (
    *(Accelerator(name=str(index), uuid=f"GPU-{index}c0ffee", used_mib=5) for index in range(3)),
    Accelerator(name="MIG-1", uuid="MIG-1"),
)


@pytest.mark.parametrize(
    ("visible", "local_rank", "name"),
    [
        (None, 0, "0"), (None, 2, "2"), (None, 3, None), ("", 0, None), ("-1", 0, None),
        ("2,1", 0, "2"), ("2,1", 1, "1"), ("2,1", 2, None), ("2", 5, "2"), ("GPU-1c, 0", 0, "1"),
        ("MIG-1", 0, "MIG-1"), ("7", 0, None), ("2,,1", 1, None),
    ],
)  # fmt: skip
def test_a_rank_uses_the_visible_device_of_its_local_rank(
    visible: str | None, local_rank: int, name: str | None
) -> None:
    found = device_of(DEVICES, visible, local_rank)

    assert (None if found is None else found.name) == name


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("3, GPU-1, 00000000:B9:00.0, 512, 81559, 100",
         "GPU 3: 512 of 81559 MiB, utilization 100 %"),
        ("3, GPU-1, 00000000:B9:00.0, 512, 81559, [N/A]", "GPU 3: 512 of 81559 MiB"),
        ("3, GPU-1, x, [GPU is lost], [GPU is lost], [GPU is lost]", "GPU 3: unreadable"),
        ("3, GPU-1, 512", None),
        ("No devices were found", None),
    ],
)  # fmt: skip
def test_rows_of_nvidia_smi_are_read(row: str, text: str | None) -> None:
    found = device_of_row(row)

    assert (None if found is None else found.text) == text


DUMPED = """== pid=7 ppid=1 state=S wchan=0 rank=9 launched local=1 slots=2 cuda=0,3
Thread 7 (idle): "MainThread"
    all_reduce (/x/torch/distributed/distributed_c10d.py:1)
== end
"""


def test_the_state_of_a_node_follows_the_dumps_of_its_processes() -> None:
    text = (
        f"{DUMPED}== kernel 100.50\n4,1,90500000,-;{XID}\n== gpus\n"
        "3, GPU-1, 00000000:B9:00.0, 512, 81559, 100\n"
    )
    found = findings_of(text, "n", T0)

    assert [one.rank for one in found.snapshots] == [8, 9]
    assert found.snapshots[1].accelerator == Accelerator(
        name="3", uuid="GPU-1", bus_id="00000000:B9:00.0", used_mib=512, total_mib=81559,
        utilization=100,
    )  # fmt: skip
    assert found.kernel == (NodeKernelLog(node="n", lines=(line(XID, -10),)),)
    assert "; kernel on n: XID of the GPU of rank 9: NVRM" in verdict_of(found).text


def test_what_cannot_be_read_of_a_node_is_stated() -> None:
    found = findings_of(f"{DUMPED}== kernel unread\n== gpus unread\n", "n", T0)

    assert [one.rank for one in found.snapshots] == [8, 9]
    assert found.kernel[0].note == (
        "/dev/kmsg could not be read; the accelerators were not read in time"
    )
    assert [one.rank for one in findings_of(DUMPED, "n", T0).snapshots] == [8, 9]
    assert findings_of("", "n", T0) == RankFindings()


@given(st.text(max_size=400), st.text(alphabet="=kernlgpus ,.;-\n0123456789", max_size=400))
def test_whatever_is_printed_for_the_kernel_is_read(dumps: str, state: str) -> None:
    log = kernel_log_of(split_state(f"{dumps}\n== kernel {state}")[1], "n", T0)

    assert log.node == "n"
    assert len(log.lines) <= LINES
    assert all(2000 <= one.at.year < 2200 for one in log.lines)
