"""``holdfast check pairs`` with a command that plays the tests of pairs."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from holdfast.apps.main import run

NODES = ",".join(f"n{number}" for number in range(8))


def command(tmp_path, code: str) -> list[str]:
    """A program that is given both names."""
    script = tmp_path / "pair.py"
    script.write_text(f"import os, sys, time\none, other = sys.argv[1:]\n{code}\n")
    return ["--", sys.executable, str(script)]


def test_a_bad_node_is_named(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit('n3' in (one, other))")

    assert run(["check", "pairs", "--nodes", NODES, *argv]) == 1
    captured = capfd.readouterr()
    assert captured.out.startswith("n3 is bad (")
    assert "round 1: 4 pairs, failed: " in captured.err
    assert "n3" in captured.err


def test_good_nodes_are_released_as_soon_as_it_is_sure(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit(0)")

    assert run(["check", "pairs", "--nodes", NODES, "-o", "json", *argv]) == 0
    result = json.loads(capfd.readouterr().out)
    assert result["bad_nodes"] == result["bad_links"] == []
    assert result["is_settled"]
    assert result["rounds"] == 7
    assert len(result["tests"]) == 28


def test_a_test_that_hangs_has_failed(tmp_path, capfd) -> None:
    argv = command(tmp_path, "time.sleep(60 if 'n3' in (one, other) else 0)")

    options = ["--timeout", "2s", "--rounds", "3"]
    assert run(["check", "pairs", "--nodes", NODES, *options, *argv]) == 1
    assert capfd.readouterr().out.startswith("n3 is bad (")


def test_doubts_that_are_left_are_reported(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit('n3' in (one, other))")

    assert run(["check", "pairs", "--nodes", NODES, "--rounds", "1", *argv]) == 0
    out = capfd.readouterr().out
    assert out.startswith(
        "No node or link can be identified as bad after 1 rounds.\nMost likely bad: "
    )
    assert "n3" in out


def test_what_fails_everywhere_is_blamed_on_nobody(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit(1)")

    assert run(["check", "pairs", "--nodes", NODES, *argv]) == 1
    assert "check what all nodes share" in capfd.readouterr().out


@pytest.mark.parametrize("nodes", ["", "a", "a,a", "a,b,a", ","])
def test_too_few_nodes_are_refused(tmp_path, nodes) -> None:
    argv = command(tmp_path, "sys.exit(0)")

    assert run(["check", "pairs", "--nodes", nodes, *argv]) == 2


def test_a_command_that_is_not_there_is_refused(capfd) -> None:
    assert run(["check", "pairs", "--nodes", NODES, "--", "/nowhere/test"]) == 2
    assert "/nowhere/test" in capfd.readouterr().err


def test_why_a_pair_failed_is_reported_beside_it(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit('\\x1b[2Jno route' if 'n3' in (one, other) else 0)")

    assert run(["check", "pairs", "--nodes", NODES, *argv]) == 1
    output = capfd.readouterr().err.splitlines()
    assert "  n3 and n4: it exited with 1: �[2Jno route" in output
    assert not [line for line in output if line.startswith("  n0 and n1: ")]


def test_a_command_that_cannot_be_started_blames_nobody(tmp_path, capfd) -> None:
    script = tmp_path / "pair.sh"
    script.write_text("exit 0\n")  # no line says what is to run it
    script.chmod(0o755)

    assert run(["check", "pairs", "--nodes", NODES, "--", str(script)]) == 1
    said = capfd.readouterr()
    assert said.out == ""
    assert "no pair could be tested: " in said.err
    assert f"cannot start {script}: Exec format error" in said.err


@pytest.mark.parametrize("options", [["--timeout", "0s"], ["--stream", "/nowhere/stream"]])
def test_what_would_invalidate_the_result_is_refused_before_any_test(
    tmp_path, capfd, options
) -> None:
    argv = command(tmp_path, f"open({str(tmp_path / 'ran')!r}, 'w')")

    assert run(["check", "pairs", "--nodes", NODES, *options, *argv]) == 2
    assert options[0] in capfd.readouterr().err
    assert not (tmp_path / "ran").exists()


def test_a_stream_that_cannot_be_written_in_the_end_changes_no_result(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit('n3' in (one, other))")

    assert run(["check", "pairs", "--nodes", NODES, "--stream", "/dev/full", *argv]) == 1
    captured = capfd.readouterr()
    assert captured.out.startswith("n3 is bad (")
    assert "--stream /dev/full cannot be written" in captured.err


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_whoever_ends_it_ends_its_tests_and_does_not_wait_for_them(tmp_path, number, code) -> None:
    started = tmp_path / "started"
    argv = command(
        tmp_path, f"print(os.getpid(), file=open({str(started)!r}, 'a')); time.sleep(99)"
    )
    options = ["--nodes", NODES, "--at-once", "2"]
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast", "check", "pairs", *options, *argv]
    )
    deadline = time.monotonic() + 30
    while not started.exists() or len(started.read_text().split()) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)

    process.send_signal(number)

    assert process.wait(timeout=30) == code
    pids = started.read_text().split()
    assert len(pids) == 2  # those that waited did not begin
    assert [pid for pid in pids if os.path.exists(f"/proc/{pid}")] == []
