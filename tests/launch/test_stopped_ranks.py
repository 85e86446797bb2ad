"""What a launcher reports of ranks that a stop has ended."""

import subprocess
import sys
from pathlib import Path

from launch.launched import LIMIT_S, clean_environment

END_RANKS = """
import os, signal, sys, tempfile, time
from pathlib import Path

from holdfast.apps.launch.node_ranks import NodeRanks
from holdfast.apps.launch.options import parse
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.decisions.launch_events import Failed, Member
from holdfast.decisions.launch_orders import Order, OrderKind

RANK = '''
import os, pathlib, signal, sys, time
def fail(*_):
    raise KeyError("a consequence of the stop")
if os.environ["RANK"] == "0":  # has failed by itself, and takes long to end
    print("Traceback (most recent call last):", file=sys.stderr)
    print("OSError: [Errno 28] No space left on device", file=sys.stderr, flush=True)
else:
    signal.signal(signal.SIGTERM, fail)
pathlib.Path(sys.argv[1], os.environ["RANK"]).touch()
time.sleep(600)
'''
folder = Path(tempfile.mkdtemp())
ranks = ["--nproc-per-node", "2", "--no-python", sys.executable, "-c", RANK, str(folder)]
options = parse(ranks, {})
member = Member(name="a", address="127.0.0.1", port=1, slots=2)
events = []
with StderrRelay() as relay:
    output = RankOutput(options.logs, options.run_id, options.role, relay)
    node = NodeRanks(member, options, dict(os.environ), events.append, output)
    order = Order(
        kind=OrderKind.RUN, round=1, world_size=2, master_addr="127.0.0.1", master_port=1
    )
    node.apply_order(order)
    while len(list(folder.iterdir())) < 2:
        node.advance()
        time.sleep(0.01)
    node.stop(signal.SIGTERM)
    while not node.is_idle():
        node.advance()
        time.sleep(0.01)
    node.close(keeps_evidence=False)
for one in events:
    print(type(one).__name__, *((one.rank, one.cause) if isinstance(one, Failed) else ()))
"""


def test_only_a_rank_that_had_failed_by_itself_is_reported_and_before_the_end() -> None:
    done = subprocess.run(
        [sys.executable, "-c", END_RANKS],
        env=clean_environment(),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=LIMIT_S,
    )
    assert done.stdout.splitlines() == ["Failed 0 DiskFull", "Stopped"], done.stderr
