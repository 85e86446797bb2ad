"""Dumps of PyTorch's flight recorder: what they show of a hang, and that nothing in them runs."""

import importlib.util
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.flight_dumps import dumped_ranks, read_traces, request_dumps
from holdfast.decisions.flight_recorder import (
    DumpFiles,
    dump_files,
    recorded_verdict,
    recorder_environment,
)
from holdfast.decisions.hang_verdict import VerdictKind
from tests.engines.ports import free_port

SCRIPT = Path(__file__).parents[2] / "local/frameworks/torch_records.py"


def entry(number: int, **changes: object) -> dict:
    """An entry as torch 2.10 writes it."""
    return {
        "record_id": number,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "state": "completed",
        "retired": True,
        "frames": [{"name": "main", "filename": "/w/train.py", "line": 9}],
        **changes,
    }


def files(folder: Path) -> DumpFiles:
    return DumpFiles.in_folder(str(folder))


def dumped(folder: Path, *ranks: list[dict]) -> Path:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(len(ranks))])}}
    for rank, entries in enumerate(ranks):
        content = {"version": "2.10", "pg_config": config, "entries": entries}
        (folder / f"rank_{rank}").write_bytes(pickle.dumps(content, protocol=2))
    return folder


def test_a_dump_of_other_than_plain_values_is_not_executed(tmp_path: Path) -> None:
    class Runs:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    dumped(tmp_path, [entry(1)], [entry(1)])
    (tmp_path / "rank_0").write_bytes(pickle.dumps({"entries": [Runs()]}))

    assert [one.rank for one in read_traces(files(tmp_path))] == [1]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("opcode", [b"\x96" + b"\xff" * 8, b"\x8e" + b"\xff" * 7 + b"\x7f", b"c"])
def test_an_opcode_that_reserves_memory_is_rejected(tmp_path: Path, opcode: bytes) -> None:
    (tmp_path / "rank_0").write_bytes(b"\x80\x05" + opcode + b".")

    assert read_traces(files(tmp_path)) == ()


def test_a_key_that_is_not_a_string_is_rejected(tmp_path: Path) -> None:
    key = pickle.EMPTY_TUPLE + 1_000_000 * pickle.TUPLE1
    nested = pickle.EMPTY_DICT + pickle.MARK + key + pickle.NONE + pickle.SETITEMS + pickle.STOP
    (tmp_path / "rank_0").write_bytes(nested)

    assert read_traces(files(tmp_path)) == ()


@given(st.binary(max_size=200))
def test_no_content_raises(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("dumps")
    (folder / "rank_0").write_bytes(content)

    assert len(read_traces(files(folder))) <= 1


@pytest.mark.parametrize(
    ("ranks", "kind", "named", "text"),
    [
        (
            ([entry(1), entry(2, state="started", retired=False)], [entry(1)]),
            VerdictKind.ABSENT, (1,),
            "rank 1 never entered all_reduce 2 of default_pg, called by main (train.py:9)",
        ),
        (
            ([entry(1), entry(2, state="started")], [entry(1)]),  # timed out
            VerdictKind.ABSENT, (1,),
            "rank 1 never entered all_reduce 2 of default_pg, called by main (train.py:9)",
        ),
        (
            ([entry(1)], [entry(1)], [entry(1, input_sizes=[[5]])]),
            VerdictKind.DESYNCHRONIZED, (2,),
            "rank 2 has sizes [5], called by main (train.py:9), but the other ranks have sizes [4]",
        ),
        (
            ([entry(1)], [entry(1)], [entry(1, input_dtypes=["Half"])]),
            VerdictKind.DESYNCHRONIZED, (2,),
            "rank 2 has the data type Half, called by main (train.py:9), but the other ranks have",
        ),
        (
            ([entry(1, profiling_name="nccl:broadcast")], [entry(1)]),
            VerdictKind.DESYNCHRONIZED, (),
            "rank 0 calls broadcast, called by main (train.py:9), and rank 1 calls all_reduce, "
            "called by main (train.py:9), in collective 1 of default_pg: the ranks run different",
        ),
        (
            ([entry(1, input_sizes=[[5]])], [entry(1)], [entry(1)], [entry(1, input_sizes=[[5]])]),
            VerdictKind.DESYNCHRONIZED, (),
            "ranks 0, 3 have sizes [5], called by main (train.py:9), and ranks 1, 2 have sizes [4]",
        ),
        (
            ([entry(1, state="scheduled", retired=False)],) * 2,
            VerdictKind.SAME, (),
            "all 2 ranks with a dump entered all_reduce 1 of default_pg",
        ),
        (  # enqueued further than executed: none of them is behind
            (
                [entry(1), *(entry(one, state="scheduled", retired=False) for one in (2, 3))],
                [entry(1), *(entry(one, state="scheduled", retired=False) for one in (2, 3, 4))],
            ),
            VerdictKind.SAME, (),
            "all 2 ranks with a dump entered all_reduce 2 of default_pg, called by main",
        ),
    ],
)  # fmt: skip
def test_missing_ranks_and_mismatches_are_named(tmp_path, ranks, kind, named, text) -> None:
    found = recorded_verdict(read_traces(files(dumped(tmp_path, *ranks))))

    assert found is not None
    assert (found.kind, found.ranks) == (kind, named)
    assert found.text.startswith(text)


@pytest.mark.parametrize(
    "ranks",
    [
        ([entry(1)], [entry(1)]),
        ([entry(1), entry(2)], [entry(1)]),  # over: rank 1 records it late
        ([entry(1, state="started", retired=False)],),
        ([entry(7)], [entry(9, process_group=("1", "tp"))]),
        (
            [entry(1, profiling_name="nccl:gather", input_sizes=[[5]])],
            [entry(1, profiling_name="nccl:gather")],
        ),
        ([], []),
    ],
)  # fmt: skip
def test_healthy_traces_and_those_of_single_ranks_show_nothing(tmp_path, ranks) -> None:
    assert recorded_verdict(read_traces(files(dumped(tmp_path, *ranks)))) is None


def test_dumps_of_other_ranks_are_neither_requested_nor_read(tmp_path: Path) -> None:
    """The directory may be one that nodes share."""
    dumped(tmp_path, [entry(1)], [entry(2)])
    for rank in (0, 1):
        os.mkfifo(tmp_path / f"request_{rank}.pipe")
    opened = [os.open(one, os.O_RDONLY | os.O_NONBLOCK) for one in tmp_path.glob("*.pipe")]

    asked = request_dumps(files(tmp_path), {1})
    (tmp_path / "rank_1").write_bytes((tmp_path / "rank_0").read_bytes())
    found = read_traces(files(tmp_path), asked, {1})
    for one in opened:
        os.close(one)

    assert asked == {1}
    assert [one.rank for one in found] == [1]
    assert (tmp_path / "rank_0").exists()


def test_a_dump_is_requested_through_the_pipe_of_a_rank(tmp_path: Path) -> None:
    """The rank here listens as NCCL's process group does."""
    given_by_torch = recorder_environment({}, str(tmp_path))
    pipe = given_by_torch["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + "0.pipe"
    os.mkfifo(pipe)
    os.mkfifo(pipe.replace("0.pipe", "1.pipe"))  # of a rank that has ended
    dumped(tmp_path, [entry(8)])
    opened = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    asked = request_dumps(files(tmp_path))
    assert os.read(opened, 10)
    os.close(opened)
    later = threading.Timer(0.2, lambda: dumped(tmp_path, [entry(9)]))
    later.start()
    (trace,) = read_traces(files(tmp_path), asked)
    later.join()

    assert asked == {0}
    assert [one.sequence for one in trace.collectives] == [9]


def test_what_the_user_has_set_stays(tmp_path: Path) -> None:
    own = recorder_environment(
        {"TORCH_NCCL_TRACE_BUFFER_SIZE": "7", "TORCH_FR_DUMP_TEMP_FILE": "/x"}, str(tmp_path)
    )

    assert {*own} == {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_NCCL_DUMP_ON_TIMEOUT"}
    default = recorder_environment({}, str(tmp_path))
    assert default["TORCH_FR_BUFFER_SIZE"] == default["TORCH_NCCL_TRACE_BUFFER_SIZE"] == "2000"


def test_dumps_are_read_where_the_user_has_set_it(tmp_path: Path) -> None:
    """Of both names PyTorch prefers the newer one; characters of a pattern stand for themselves."""
    own = {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/old_", "OTHER": "x"}
    both = {**own, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace(1)_"}
    (tmp_path / "trace(1)_3").write_bytes((dumped(tmp_path, [entry(4)]) / "rank_0").read_bytes())

    (trace,) = read_traces(dump_files(both, "/nowhere"))

    assert (trace.rank, trace.collectives[0].sequence) == (3, 4)
    assert dump_files(own, "/d").dump == f"{tmp_path}/old_"
    assert dump_files(own, "/d").pipe == DumpFiles.in_folder("/d").pipe
    assert read_traces(dump_files(own, "/nowhere")) == ()


def test_dumps_of_an_earlier_attempt_are_left_out(tmp_path: Path) -> None:
    dumped(tmp_path, [entry(1)], [entry(1)])
    os.utime(tmp_path / "rank_0", (1000, 1000))

    assert [one.rank for one in read_traces(files(tmp_path), since=1001)] == [1]
    assert dumped_ranks(files(tmp_path), {0, 1}, 1001) == {1}
    assert dumped_ranks(files(tmp_path), {0}, 1000) == {0}


def test_a_rank_that_has_ended_keeps_the_dump_of_its_watchdog(tmp_path: Path) -> None:
    dumped(tmp_path, [entry(1)])
    os.mkfifo(tmp_path / "request_0.pipe")

    assert request_dumps(files(tmp_path)) == frozenset()
    assert [one.rank for one in read_traces(files(tmp_path))] == [0]


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_real_traces_of_gloo_name_the_rank(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("absent", "mismatch")]
    for one in folders:
        one.mkdir()
    base = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(SCRIPT), *map(str, folders)],
            env={**base, "WORLD_SIZE": "2", "RANK": str(rank), "TORCH_FR_BUFFER_SIZE": "2000"},
        )
        for rank in (0, 1)
    ]
    assert [one.wait() for one in ranks] == [0, 0]

    absent, mismatch = (recorded_verdict(read_traces(files(one))) for one in folders)

    assert absent is not None
    assert (absent.kind, absent.ranks) == (VerdictKind.ABSENT, (1,))
    assert absent.text.startswith("rank 1 never entered all_reduce 3 of default_pg, called by")
    assert mismatch is not None
    assert (mismatch.kind, mismatch.ranks) == (VerdictKind.DESYNCHRONIZED, ())
    assert "calls broadcast, called by" in mismatch.text
    assert "calls all_reduce, called by" in mismatch.text
