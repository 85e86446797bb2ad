"""CPU quotas and waits for a CPU, of real processes."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.cgroup_limits import limited_to

from holdfast.adapters.host.control_groups import control_groups
from holdfast.adapters.host.cpu_waits import quotas_between, read_periods, waited_s
from holdfast.decisions.rank_slowdowns import Quota

BUSY = "while True: pass"
IDLE = "import time; time.sleep(600)"

VERSION_2 = """usage_usec 4180
user_usec 3100
system_usec 1080
nr_periods {}
nr_throttled {}
throttled_usec 2500
nr_bursts 0
burst_usec 0
"""


@contextmanager
def running(code: str) -> Iterator[int]:
    """A process of Python."""
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def slowdowns(slow: int, *pids: int) -> str:
    ranks = [f"{rank}:{pid}" for rank, pid in enumerate(pids)]
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.adapters.host.rank_slowdowns", "--seconds", "1",
         "--library", "no-nvml.so", str(slow), *ranks],
        capture_output=True, check=True, encoding="utf-8", timeout=120,
    )  # fmt: skip
    return str(json.loads(done.stdout))


def test_a_real_quota_is_that_of_the_throttled_rank_alone() -> None:
    name = f"holdfast-quota-{os.getpid()}"
    with running(IDLE) as free, running(BUSY) as limited, limited_to(5, limited, name):
        text = slowdowns(1, free, limited)
        of_other = slowdowns(0, free, limited)

    assert text.startswith("its control group was throttled in ")
    assert "throttled" not in of_other


def test_a_rank_that_shares_its_cpu_waits_longer_than_one_that_does_not() -> None:
    one = f"import os; os.sched_setaffinity(0, {{{min(os.sched_getaffinity(0))}}})\n"
    with (
        running(one + BUSY), running(one + BUSY), running(one + BUSY),
        running(one + BUSY) as slow, running(IDLE) as other,
    ):  # fmt: skip
        text = slowdowns(0, slow, other)

    share = re.fullmatch(
        r"its main thread waits for a CPU (\d+)% of the time, those of the other ranks on its node "
        r"0%",
        text,
    )
    assert share is not None, text
    assert int(share[1]) > 50  # it runs at most in a quarter of the time


def test_the_quota_of_each_control_group_above_counts_as_of_version_2(tmp_path: Path) -> None:
    own, pod, kind = tmp_path / "pod" / "rank", tmp_path / "pod", tmp_path / "none"
    own.mkdir(parents=True)
    (own / "cpu.stat").write_text("usage_usec 4180\nuser_usec 1\nsystem_usec 1\n", encoding="utf-8")
    groups = [own, pod, kind]
    readings = []
    for counts in ((100, 10), (150, 41)):
        (pod / "cpu.stat").write_text(VERSION_2.format(*counts), encoding="utf-8")
        readings.append(read_periods(groups))
    before, after = readings

    assert quotas_between(before, after, {pod}) == [Quota(throttled=0.62, is_shared=True)]
    assert quotas_between(after, after, {pod}) == []
    assert quotas_between({}, after, {pod}) == []
    assert quotas_between(after, before, {pod}) == []


def test_a_process_that_has_ended_has_neither() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()

    assert control_groups(ended.pid, "cpu") == []
    assert waited_s({0: ended.pid}) == {}
    assert slowdowns(0, ended.pid) == ""
