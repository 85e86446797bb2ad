import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast.adapters.host.commands import LARGEST_OUTPUT, run_command
from holdfast.model.errors import BackendError

LONG = timedelta(seconds=20)
SHORT = timedelta(milliseconds=300)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def eventually_dead(path: Path) -> None:
    deadline = time.monotonic() + 20
    while is_alive(int(path.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_both_outputs_and_the_status_are_kept_apart() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(9)"

    result = run_command(python(code), timeout=LONG)

    assert (result.stdout, result.stderr, result.status) == ("out\n", "err\n", 9)


def test_output_longer_than_a_pipe_and_not_of_utf8_is_taken() -> None:
    code = "import sys; sys.stdout.buffer.write(b'\\xff' + b'x' * 1_000_000)"

    assert len(run_command(python(code), timeout=LONG).stdout) == 1_000_001


def test_a_command_that_is_missing_is_reported() -> None:
    with pytest.raises(BackendError, match="cannot start /no/such/tool"):
        run_command(["/no/such/tool"], timeout=LONG)


@pytest.mark.parametrize("code", ["import time; time.sleep(60)", "import os, time; os.close(1); "
    "os.close(2); time.sleep(60)"])  # fmt: skip
def test_a_command_that_hangs_is_killed_with_all_that_it_started(tmp_path: Path, code: str) -> None:
    child = tmp_path / "child"
    script = f"sleep 60 & echo $! > {child}; exec {sys.executable} -c '{code}'"

    with pytest.raises(BackendError, match=r"did not end within 0\.3 s"):
        run_command(["sh", "-c", script], timeout=SHORT)

    eventually_dead(child)


def test_a_child_that_keeps_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    child = tmp_path / "child"

    result = run_command(["sh", "-c", f"sleep 60 & echo $! > {child}; echo done"], timeout=LONG)

    assert result.stdout == "done\n"
    eventually_dead(child)


def test_a_command_that_never_stops_writing_is_stopped() -> None:
    with pytest.raises(BackendError, match=f"more than {LARGEST_OUTPUT} bytes"):
        run_command(["sh", "-c", "yes"], timeout=LONG)


def test_no_descriptor_is_left() -> None:
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(3):
        run_command(["true"], timeout=LONG)

    assert len(os.listdir("/proc/self/fd")) == before
