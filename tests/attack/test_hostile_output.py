"""No output of a rank or of a check makes what reads it fail, or take long."""

import json
import pickle
from pathlib import Path

import pytest
from hostile import FUZZ, Parser, mutated, timed
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.flight_dumps import read_traces
from holdfast.adapters.host.progress_file import ReportReader, read_progress
from holdfast.adapters.telemetry.check_summary import read_summary
from holdfast.decisions.checkpoint_incidents import quarantine_incidents
from holdfast.decisions.crash_text import crash_text, error_file_text
from holdfast.decisions.failure_signatures import cause_of, is_peer_failure
from holdfast.decisions.flight_recorder import DumpFiles
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.stack_dumps import snapshots_of
from holdfast.decisions.step_lines import LogProgress, after_line, has_bad_loss
from holdfast.decisions.termination_message import (
    MESSAGE_LIMIT,
    parse_termination_message,
    termination_message,
)
from holdfast.detectors.pingpong import read_pingpong
from holdfast.model.set_aside import SetAside
from tests.ports.builders import NOW

RECORDINGS = Path(__file__).parents[1] / "recordings"


def recorded(file: str, key: str) -> list[str]:
    rows = (RECORDINGS / file).read_text(encoding="utf-8").splitlines()
    found = [json.loads(row)[key] for row in rows]
    return [("\n".join(one) if isinstance(one, list) else one)[-4000:] for one in found]


def read_steps(text: str) -> None:
    progress = LogProgress()
    for line in text.splitlines():
        progress, _ = after_line(progress, line)
        has_bad_loss(line)


def read_reports(text: str) -> None:
    path = Path("progress")
    path.write_text(text, encoding="utf-8", errors="replace")
    read_progress(path)
    assert sum(1 for _ in ReportReader(path).read()) <= len(text)


def read_crash(text: str) -> None:
    assert len(crash_text(text)) < 1000
    assert len(error_file_text(text)) < 1000
    cause_of(text)
    is_peer_failure(text)


def read_termination(text: str) -> None:
    lines, moved = parse_termination_message(text[:MESSAGE_LIMIT])
    assert all(line.strip() for line in lines)
    found = quarantine_incidents("job/1", moved, (), RemediationPolicy(), NOW)
    assert len({one.id for one in found}) == len(found) <= len(moved)
    assert all(one.id.isprintable() and len(one.id) <= 253 for one in found)


MOVED = SetAside(
    name="checkpoint-6", path="/x/checkpoint-6", why="damaged", at=NOW, job="uid", state="damaged"
)
STACKS = """\
== pid=12 ppid=1 state=S wchan=futex_wait_queue rank=3 launched job=77 node=node1 local=1 slots=2
Process 12: python train.py
Python v3.11.7 (/usr/bin/python3.11)

Thread 12 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2501)
    main (/srv/train.py:41)
== end
"""
TORCHELASTIC = '{"message": {"message": "RuntimeError: x", "extraInfo": {"timestamp": "1"}}}'
PARSERS: dict[str, tuple[Parser, list[str]]] = {
    "log of a rank": (read_crash, [*recorded("failures/development.jsonl", "log"), TORCHELASTIC]),
    "steps": (read_steps, recorded("step-lines/reported.jsonl", "lines")),
    "progress file": (read_reports, ["1\n2 0.5\n3 nan\n"]),
    "stacks of ranks": (lambda text: snapshots_of(text, "node1"), [STACKS]),
    "summary of a check": (read_summary, ['{"summary": "passed", "measured": {"gb_per_s": 1.5}}']),
    "termination message of an init container": (
        read_termination,
        [termination_message(["checkpoint-6 is damaged"], [MOVED, MOVED]).decode()],
    ),
    "ping-pong": (
        lambda text: read_pingpong(text, "", 0),
        ["64 1k =1k 127k 0.01s 1.00 2.00 3.0\n"],
    ),
}


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("output"))
        yield


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(st.data())
def test_readers_of_output_never_raise(name: str, data: st.DataObject) -> None:
    parse, seeds = PARSERS[name]
    timed(parse, data.draw(mutated(seeds)))


@pytest.mark.parametrize("key", ["ranks", "desc"])
def test_lists_in_one_another_in_a_dump_take_no_time(tmp_path: Path, key: str) -> None:
    lists: list[object] = [1]
    for _ in range(50):
        lists = [lists] * 50
    group = {"name": "0", "desc": "default_pg", "ranks": "[0]", key: lists}
    for rank, found in enumerate(({"0": group}, {})):
        dump = {"entries": [], "pg_config": found}
        (tmp_path / f"rank_{rank}").write_bytes(pickle.dumps(dump, protocol=2))

    assert [one.rank for one in read_traces(DumpFiles.in_folder(str(tmp_path)))] == [1]
