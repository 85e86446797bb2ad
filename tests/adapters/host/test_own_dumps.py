"""Flight recorders of ranks beside which no Holdfast is installed."""

import base64
import json
import os
import pickle
import subprocess
import sys
import threading
import time
import zlib
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from launch.recorded_ranks import dump, entry, rank

from holdfast.adapters.host.dump_command import dump_command
from holdfast.adapters.host.flight_dumps import read_traces
from holdfast.decisions.flight_recorder import DumpFiles, RankTrace, recorded_verdict, summaries
from holdfast.decisions.recorder_dumps import TRACES_LIMIT, distinct, printed_traces, split_traces


def printed(folder: Path, seconds: float = 7, first: str = "[0-9]*") -> str:
    """What the command prints that takes the interpreter of the ``first`` of these processes."""
    whole = dump_command(timedelta(seconds=seconds))
    command = [one.replace("/proc/[0-9]*", f"/proc/{first}") for one in whole]
    done = subprocess.run(
        command, check=False, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(folder)}, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0
    return done.stdout


def traces(folder: Path, seconds: float = 7) -> tuple[RankTrace, ...]:
    rest, found = split_traces(printed(folder, seconds))
    assert rest == ""
    return printed_traces(found)


def test_ranks_are_asked_for_their_dumps_and_the_one_behind_is_named(tmp_path: Path) -> None:
    others = dump(*map(entry, range(1, 1000)), entry(1000, "started"), entry(1001, "scheduled"))
    behind = dump(*map(entry, range(1, 1000)))

    with rank(0, tmp_path, others), rank(1, tmp_path, behind), rank(2, tmp_path, others):
        (tmp_path / "dump_1").write_bytes(others)  # of an earlier request
        found = traces(tmp_path)
        text = printed(tmp_path)

    decided = recorded_verdict(found)
    assert decided is not None
    assert decided.ranks == (1,)
    assert decided.text == (
        "rank 1 never entered all_reduce 1000 of default_pg, called by main (train.py:7)"
    )
    assert [[one.sequence for one in trace.collectives] for trace in found] == [
        [*range(992, 1002)], [*range(992, 1000)], [*range(992, 1002)]
    ]  # fmt: skip
    assert max(map(len, text.splitlines())) <= 500, "srun breaks long lines"
    assert len(text) < TRACES_LIMIT / 64


RECORDS = """
import sys, torch, torch.distributed as dist
from torch._C import _distributed_c10d as native
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
for size in (1, 2, 3):
    dist.all_reduce(torch.ones(size))
open(sys.argv[1], "wb").write(native._dump_fr_trace())
"""


@pytest.mark.torch
def test_a_dump_of_pytorch_is_read_as_on_one_machine(tmp_path: Path) -> None:
    variables = {**os.environ, "TORCH_FR_BUFFER_SIZE": "100"}
    command = [sys.executable, "-c", RECORDS, tmp_path / "source"]
    subprocess.run(command, check=True, env=variables)

    with rank(3, tmp_path, (tmp_path / "source").read_bytes()):
        found = traces(tmp_path)

    whole = read_traces(DumpFiles(dump=f"{tmp_path}/dump_", pipe=""))
    assert summaries(found, over=8, waiting=8) == summaries(whole, over=8, waiting=8)
    assert [one.sizes for one in found[0].collectives] == [((1,),), ((2,),), ((3,),)]


def test_a_dump_of_a_watchdog_is_read_without_a_pipe_but_not_one_of_an_earlier_job(
    tmp_path: Path,
) -> None:
    old, new = tmp_path / "dump_1", tmp_path / "dump_0"
    old.write_bytes(dump(entry(1)))
    os.utime(old, (1, 1))
    cache = tmp_path / ".cache/torch"
    cache.mkdir(parents=True)
    unset = {"TORCH_FR_DUMP_TEMP_FILE": "", "HOME": str(tmp_path)}
    with rank(0, tmp_path, None), rank(1, tmp_path, None), rank(2, tmp_path, None, **unset):
        new.write_bytes(dump(entry(4)))
        (cache / "comm_lib_trace_rank_2").write_bytes(dump(entry(5)))
        found = traces(tmp_path)

    numbers = {one.rank: [each.sequence for each in one.collectives] for one in found}
    assert numbers == {0: [4], 2: [5]}


def test_nothing_but_regular_files_and_fifos_is_opened_and_nothing_in_them_is_executed(
    tmp_path: Path,
) -> None:
    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    good, ends = dump(entry(1)), tmp_path / "ask_4.pipe"
    ends.write_bytes(b"kept")
    with (
        rank(0, tmp_path, None), rank(1, tmp_path, None), rank(2, tmp_path, None),
        rank(3, tmp_path, None), rank(4, tmp_path, None), rank(5, tmp_path, None),
    ):  # fmt: skip
        (tmp_path / "elsewhere").write_bytes(good)
        (tmp_path / "dump_0").symlink_to(tmp_path / "elsewhere")
        os.mkfifo(tmp_path / "dump_1")
        (tmp_path / "dump_2").write_bytes(pickle.dumps({"entries": [Attack()]}))
        (tmp_path / "dump_3").write_bytes(good)
        os.truncate(tmp_path / "dump_3", 1 << 40)
        (tmp_path / "dump_4").write_bytes(good)
        (tmp_path / "ask_5.pipe").symlink_to(ends)
        found = traces(tmp_path)

    assert [one.rank for one in found] == [4]
    assert not (tmp_path / "executed").exists()
    assert ends.read_bytes() == b"kept"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_opens_the_files_that_a_job_names_with_the_rights_of_the_job() -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with rank(0, folder, None, "nobody"), rank(1, folder, None, "nobody"):
            for number, mode in ((0, 0o600), (1, 0o644)):
                file = folder / f"dump_{number}"
                file.write_bytes(dump(entry(1)))
                file.chmod(mode)
            found = traces(folder)

    assert [one.rank for one in found] == [1]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_runs_no_program_of_a_job_of_slurm(tmp_path: Path) -> None:
    program = tmp_path / "python"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    environment = {"RANK": "0", "SLURM_JOB_ID": str(tmp_path)}
    with subprocess.Popen([program, "10"], env=environment) as own, rank(1, tmp_path, None):
        (tmp_path / "dump_1").write_bytes(dump(entry(1)))
        found = printed_traces(split_traces(printed(tmp_path, first=str(own.pid)))[1])
        own.kill()

    assert [one.rank for one in found] == [1]


def test_a_rank_that_never_dumps_is_awaited_no_longer_than_allowed(tmp_path: Path) -> None:
    with rank(0, tmp_path, b"damaged"), rank(1, tmp_path, dump(entry(1))):
        assert [one.rank for one in traces(tmp_path, seconds=2)] == [1]
    assert traces(tmp_path) == (), "no rank runs"


def test_the_command_does_not_fail_where_python_runs_and_no_rank(tmp_path: Path) -> None:
    assert printed(tmp_path, first=str(os.getpid())) == ""


def test_a_dump_that_is_being_written_is_awaited(tmp_path: Path) -> None:
    data, pipe = dump(entry(1)), tmp_path / "ask_0.pipe"
    os.mkfifo(pipe)
    asked = os.open(pipe, os.O_RDWR)

    def writes() -> None:
        os.read(asked, 100)
        with (tmp_path / "dump_0").open("wb") as file:
            file.write(data[:-1])
            file.flush()
            time.sleep(0.3)
            file.write(data[-1:])

    with rank(0, tmp_path, None):
        writer = threading.Thread(target=writes)
        writer.start()
        found = traces(tmp_path)
        writer.join()
    os.close(asked)

    assert [one.rank for one in found] == [0]


def packed(value: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(value).encode())).decode()


plain = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["0", "entries", "pg_config", "name", "process_group", "frames"]), inner
    ),
    max_leaves=20,
)  # fmt: skip


@given(plain)
def test_what_a_job_prints_is_a_trace_or_missing(value: object) -> None:
    assert all(isinstance(one, RankTrace) for one in printed_traces(packed({"0": value})))
    assert all(isinstance(one, RankTrace) for one in printed_traces(packed(value)))


@given(st.text(), st.binary(max_size=50))
def test_damaged_output_has_no_traces(text: str, data: bytes) -> None:
    rest, found = split_traces(text)
    assert rest in text
    assert printed_traces(found) == ()
    assert printed_traces(base64.b64encode(data).decode()) == ()


def test_output_with_other_ranks_or_that_grows_when_it_is_unpacked_is_ignored() -> None:
    assert printed_traces(packed({"-1": {"entries": []}, "1000000": {"entries": []}})) == ()
    assert printed_traces(packed({"0": {"entries": [], "x": "x" * (1 << 23)}})) == ()


def test_the_command_fits_into_the_line_of_a_request() -> None:
    """nginx allows 8 KiB by default."""
    query = urlencode({"command": dump_command(timedelta(seconds=7))}, doseq=True)
    assert len(query) < 7000


def test_a_rank_has_one_trace() -> None:
    first, again = (RankTrace(rank=1, collectives=(), members={f"g{n}": frozenset()}) for n in "ab")
    other = RankTrace(rank=0, collectives=(), members={})
    assert distinct((first, other, again)) == (other, first)
