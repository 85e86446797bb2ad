"""The straggler that ``holdfast run`` reports, with what slows it down."""

import os
import subprocess
import sys
import time
from pathlib import Path

from launch.cgroup_limits import limited_to

from holdfast.adapters.host.rank_samples import Sampled
from holdfast.adapters.host.rank_stacks import NodeRanks
from holdfast.adapters.local.attempt_views import read_stragglers
from holdfast.adapters.local.straggler_watch import StragglerWatch
from holdfast.decisions.rank_snapshots import Activity, RankSamples

RANKS = ("import time; time.sleep(600)", "while True: pass")


def samples(rank: int, waits: int) -> RankSamples:
    activities = {Activity.COLLECTIVE: waits, Activity.OTHER: 160 - waits}
    return RankSamples(rank=rank, node="n", all=activities, running={}, taken=160)


def test_a_straggler_is_reported_with_the_quota_that_throttles_it(tmp_path: Path) -> None:
    ranks = [
        subprocess.Popen([sys.executable, "-c", code], env={"RANK": str(rank)})
        for rank, code in enumerate(RANKS)
    ]
    nodes = [NodeRanks(node_rank=0, node="n", root=os.getpid(), local_world_size=2)]
    watch = StragglerWatch(lambda *_: Sampled(ranks=(samples(0, 80), samples(1, 8))))
    file, deadline = tmp_path / "stragglers", time.monotonic() + 120
    try:
        with limited_to(5, ranks[1].pid, f"holdfast-watch-{os.getpid()}"):
            while (found := watch.found("job", 1, nodes, 1.15, file)) is None:
                assert time.monotonic() < deadline, read_stragglers(file)
                time.sleep(0.01)
    finally:
        for one in ranks:
            one.kill()
            one.wait()

    assert found.text.startswith("rank 1 on n is slow: ")
    assert "; its control group was throttled in " in found.text
