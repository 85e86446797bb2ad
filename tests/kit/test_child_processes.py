"""Children of a subreaper: which are left, and which are reaped."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

_START = """
    import json, os, subprocess, time
    from holdfast.kit.processes import become_subreaper, descendants, has_children, reap

    become_subreaper()

    started = []  # kept: the module reaps an ended process whose object is gone

    def start(command):
        started.append(subprocess.Popen(["sh", "-c", command], stdout=subprocess.DEVNULL))
        return started[-1]

    def until_ended(*pids):
        for pid in pids:
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    def entries():
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and is_own(pid)]

    def is_own(pid):
        try:
            with open(f"/proc/{pid}/stat") as file:
                return int(file.read().rpartition(")")[2].split()[1]) == os.getpid()
        except OSError:
            return False
"""


def _seen(tmp_path: Path, body: str) -> Any:
    """Run ``body`` in a process of its own, as it becomes a subreaper; return what it prints."""
    script = tmp_path / "subreaper.py"
    script.write_text(textwrap.dedent(_START) + textwrap.dedent(body), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, script], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    return json.loads(done.stdout)


def test_a_process_without_children_has_none(tmp_path: Path) -> None:
    assert _seen(tmp_path, "reap([]); print(json.dumps(has_children()))") is False


def test_an_orphan_in_a_session_of_its_own_is_a_child(tmp_path: Path) -> None:
    body = """
        start("setsid sleep 60 & exit 0").wait()
        left = descendants(os.getpid())
        seen = [has_children(), len(left)]
        os.kill(left[0], 9)
        until_ended(left[0])
        reap([])
        print(json.dumps([*seen, has_children(), entries()]))
    """
    assert _seen(tmp_path, body) == [True, 1, False, []]


def test_all_ended_children_are_reaped_but_those_spared(tmp_path: Path) -> None:
    body = """
        own = [start("exit 3"), start("exit 4")]
        adopted = [start("exit 0").pid for _ in range(5)]
        until_ended(*adopted, *(one.pid for one in own))
        reap([one.pid for one in own])
        left = sorted(map(int, entries())) == sorted(one.pid for one in own)
        print(json.dumps([left, has_children(), [one.wait() for one in own], has_children()]))
    """
    assert _seen(tmp_path, body) == [True, True, [3, 4], False]


def test_running_children_are_not_waited_for(tmp_path: Path) -> None:
    body = """
        running = start("exec sleep 60")
        ended = start("exit 0").pid
        until_ended(ended)
        reap([])
        left = [int(one) for one in entries()] == [running.pid]
        running.kill()
        print(json.dumps([left, running.wait()]))
    """
    assert _seen(tmp_path, body) == [True, -9]
