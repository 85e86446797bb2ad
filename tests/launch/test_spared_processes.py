"""What the launcher runs beside its ranks is not ended with them."""

import subprocess
import sys
from pathlib import Path

from launch.launched import LIMIT_S, clean_environment

END_RANKS = """
import os, signal, subprocess, sys, time

from holdfast.apps.launch.node_ranks import NodeRanks
from holdfast.apps.launch.options import parse
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.decisions.launch_events import Member
from holdfast.decisions.launch_orders import Order, OrderKind

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
options = parse(["--no-python", *SLEEP], {})
member = Member(name="a", address="127.0.0.1", port=1, slots=1)
events = []
with StderrRelay() as relay:
    output = RankOutput(options.logs, options.run_id, options.role, relay)
    node = NodeRanks(member, options, dict(os.environ), events.append, output)
    node.apply_order(Order(kind=OrderKind.RUN, round=1, master_addr="127.0.0.1", master_port=1))
    own = subprocess.Popen(SLEEP)
    left = subprocess.Popen(SLEEP)
    node.stop(signal.SIGKILL)
    while not node.is_idle():
        node.advance({own.pid})
        node.reap_adopted({own.pid, left.pid})
        time.sleep(0.01)
    print(own.poll(), left.wait())
    own.kill()
    node.close(keeps_evidence=False)
"""


def test_ranks_end_and_a_verification_of_checkpoints_goes_on() -> None:
    """A launcher that was paused ends its ranks while it verifies as the coordinator already."""
    done = subprocess.run(
        [sys.executable, "-c", END_RANKS],
        env=clean_environment(),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=LIMIT_S,
    )
    assert done.stdout.split() == ["None", "-9"], done.stderr
