from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.slurm.commands.node_text import JobFacts, parse_jobs, parse_nodes
from holdfast.adapters.slurm.commands.reasons import Author
from holdfast.kit.commands import run

# Slurm 22.05.8
OLD = (
    "NodeName=node1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=6.95"
    " AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:h100:8 NodeAddr=127.0.0.1"
    " NodeHostName=vm Port=31000 Version=22.05.8 OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0 "
    " RealMemory=1000 AllocMem=0 FreeMem=13222 Sockets=2 Boards=1 State={state} ThreadsPerCore=1"
    " TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=dev  BootTime=2026-11-20T21:10:29"
    " SlurmdStartTime=2026-11-21T01:37:29 LastBusyTime=2026-11-21T01:37:29"
    " CfgTRES=cpu=2,mem=1000M,billing=2 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0"
    " ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s{more}"
)


def line(state: str = "IDLE", more: str = "") -> str:
    return OLD.format(state=state, more=more)


def only(text: str):
    (node,) = parse_nodes(text).values()
    return node


def test_a_node_is_read() -> None:
    node = only(line("MIXED+FAIL", " Reason=Action:Replace [root@2026-11-21T01:38:11]"))

    assert (node.name, node.state) == ("node1", {"MIXED", "FAIL"})
    assert (node.reason.text, node.reason.author) == ("Action:Replace", Author.REQUEST)
    assert node.reason_set == "root@2026-11-21T01:38:11"
    assert node.slurmd == "2026-11-20T21:10:29/2026-11-21T01:37:29"


def test_what_a_reason_says_is_no_field() -> None:
    said = "State=DOWN [x] InstanceId=i-1 (rack 7)"
    node = only(line("IDLE+DRAIN", f" Reason={said} [bob@2026-11-21T01:38:11]"))

    assert node.state == {"IDLE", "DRAIN"}
    assert node.reason.text == said


@pytest.mark.parametrize("after", ["", " Comment=x Extra=y", " InstanceId=i-1 InstanceType=p5"])
def test_fields_of_later_versions_may_follow_the_reason(after: str) -> None:
    node = only(line("DOWN", f" Reason=cabling [bob@2026-11-21T01:38:11]{after}"))

    assert node.reason.text == "cabling"
    assert node.instance_id == ("i-1" if "i-1" in after else "")


@pytest.mark.parametrize("after", ["", " Comment=who knows", " Extra=y InstanceId=i-1"])
def test_a_reason_of_the_configuration_is_somebodys(after: str) -> None:
    node = only(line("IDLE+DRAIN", f" Reason=bad DIMM, RMA 4711{after}"))

    assert (node.reason.text, node.reason.author) == ("bad DIMM, RMA 4711", Author.OTHER)
    assert node.reason_set == ""
    assert node.closed_by == "slurm.conf set it to DRAIN in Slurm: bad DIMM, RMA 4711"


def test_what_a_comment_says_is_no_reason() -> None:
    node = only(line("IDLE+DRAIN", " Comment=no Reason=x Foo=y"))

    assert (node.reason.text, node.reason.author) == ("", Author.NONE)
    assert node.closed_by == "Slurm set it to DRAIN in Slurm"


@pytest.mark.parametrize(
    ("state", "closed", "heard", "asleep"),
    [
        ("IDLE", False, True, False),
        ("MIXED", False, True, False),
        ("MIXED+FAIL", True, True, False),
        ("ALLOCATED+DRAIN", True, True, False),
        ("DOWN", True, True, False),
        ("DOWN+NOT_RESPONDING", True, False, False),
        ("IDLE+NOT_RESPONDING", False, False, False),
        ("IDLE+INVALID_REG", True, True, False),
        ("DOWN+DRAIN+REBOOT_ISSUED", True, False, False),
        ("IDLE+CLOUD+POWERED_DOWN", False, False, True),
        ("IDLE+FAIL+NOT_RESPONDING+POWERING_UP", True, False, True),
        ("UNKNOWN", False, False, False),
    ],
)
def test_flags_say_how_a_node_is(state: str, closed: bool, heard: bool, asleep: bool) -> None:
    node = only(line(state))

    assert (node.is_closed, node.has_heartbeat, node.is_asleep) == (closed, heard, asleep)


@pytest.mark.parametrize(
    ("state", "idle", "free"),
    [
        ("IDLE", True, True),
        ("IDLE+CLOUD", True, True),
        ("IDLE+DYNAMIC_NORM", True, True),
        ("IDLE+PLANNED", False, True),
        ("IDLE+RESERVED", False, True),
        ("IDLE+CLOUD+POWERED_DOWN", False, True),
        ("IDLE+CLOUD+POWERING_UP", False, True),
        ("IDLE+CLOUD+POWERING_DOWN", False, False),
        ("IDLE+POWER_DOWN", False, False),
        ("IDLE+MAINTENANCE", False, False),
        ("IDLE+DRAIN", False, False),
        ("IDLE+FAIL+POWERED_DOWN", False, False),
        ("IDLE+COMPLETING", False, False),
        ("IDLE+NOT_RESPONDING", False, False),
        ("MIXED+CLOUD", False, False),
        ("ALLOCATED+POWERING_UP", False, False),
        ("DOWN+CLOUD+POWERED_DOWN", False, False),
    ],
)
def test_flags_say_whether_a_node_has_no_work(state: str, *, idle: bool, free: bool) -> None:
    node = only(line(state))

    assert (node.is_idle, node.is_free) == (idle, free)


def test_all_nodes_are_read_and_blank_lines_are_not() -> None:
    other = line().replace("NodeName=node1", "NodeName=node2")

    assert list(parse_nodes(f"{line()}\n\n{other}\n")) == ["node1", "node2"]


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_an_end_of_line_in_a_reason_hides_no_node(tmp_path: Path, end: str) -> None:
    said = line("IDLE+DRAIN", f" Reason=bad{end}DIMM{end}{end}x [bob@2026-11-21T01:38:11]")
    other = line().replace("NodeName=node1", "NodeName=node2")
    (tmp_path / "said").write_bytes(f"{said}\n{other}\n".encode())

    text = run(["cat", str(tmp_path / "said")], timeout=timedelta(seconds=20)).output
    closed, idle = parse_nodes(text).values()

    assert (closed.reason.author, closed.reason_set) == (Author.OTHER, "bob@2026-11-21T01:38:11")
    assert closed.reason.text.split() == ["bad", "DIMM", "x"]
    assert (idle.name, idle.state) == ("node2", {"IDLE"})


@pytest.mark.parametrize("text", ["no nodes here", "NodeName=n1 Arch=x"])
def test_another_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="scontrol"):
        parse_nodes(text)


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_nodes, parse_jobs):
        with suppress(ValueError):
            parse(text)


def test_jobs_are_read_with_their_nodes() -> None:
    assert parse_jobs("7|RUNNING|node[1-2]\n8|COMPLETING|node3\n9|PENDING|\n") == [
        JobFacts("7", "RUNNING", ("node1", "node2")),
        JobFacts("8", "COMPLETING", ("node3",)),
        JobFacts("9", "PENDING", ()),
    ]
