"""A service does not go on without one of its threads."""

import subprocess
import sys

import pytest

from holdfast.apps.exit_codes import ExitCode

# Started as a person starts it; the thread begins when the command prints its help.
PROCESS = """
import io, sys, threading, time
from holdfast.apps.main import main
sys.argv = ["holdfast", *sys.argv[1:]]
def watch():
    raise {error}
class Output(io.StringIO):
    def write(self, text):
        thread = threading.Thread(target=watch)
        thread.start()
        thread.join()
        time.sleep({lives})
        return super().write(text)
sys.stdout = Output()
main()
"""


def ended(command: str, error: str, lives: float = 30.0) -> "subprocess.CompletedProcess[str]":
    program = PROCESS.format(error=error, lives=lives)
    return subprocess.run(
        [sys.executable, "-c", program, command, "--help"],
        capture_output=True, text=True, timeout=25, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["api", "controller"])
def test_a_thread_with_a_bug_ends_it_to_be_started_again(command: str) -> None:
    process = ended(command, "ZeroDivisionError('nodes')")

    assert process.returncode == ExitCode.INTERNAL_ERROR
    assert "internal error: ZeroDivisionError: nodes" in process.stderr
    assert "This is a bug" in process.stderr


def test_a_thread_that_wants_to_end_ends_alone() -> None:
    assert ended("controller", "SystemExit(3)", lives=0.0).returncode == 0


def test_a_job_on_this_machine_does_not_die_of_a_thread() -> None:
    process = ended("run", "ZeroDivisionError('notices')", lives=0.0)

    assert process.returncode == 0
    assert "ZeroDivisionError" in process.stderr
