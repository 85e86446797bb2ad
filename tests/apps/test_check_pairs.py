"""``holdfast check pairs`` with a command that plays the tests of pairs."""

import json
import sys

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


def test_doubts_that_are_left_are_told(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit('n3' in (one, other))")

    assert run(["check", "pairs", "--nodes", NODES, "--rounds", "1", *argv]) == 0
    out = capfd.readouterr().out
    assert out.startswith("No node or link can be blamed after 1 rounds.\nMost suspicious: ")
    assert "n3" in out


def test_what_fails_everywhere_is_blamed_on_nobody(tmp_path, capfd) -> None:
    argv = command(tmp_path, "sys.exit(1)")

    assert run(["check", "pairs", "--nodes", NODES, *argv]) == 1
    assert "look at what all share" in capfd.readouterr().out


@pytest.mark.parametrize("nodes", ["", "a", "a,a", "a,b,a", ","])
def test_too_few_nodes_are_refused(tmp_path, nodes) -> None:
    argv = command(tmp_path, "sys.exit(0)")

    assert run(["check", "pairs", "--nodes", nodes, *argv]) == 2


def test_a_command_that_is_not_there_is_refused(capfd) -> None:
    assert run(["check", "pairs", "--nodes", NODES, "--", "/nowhere/test"]) == 2
    assert "/nowhere/test" in capfd.readouterr().err
