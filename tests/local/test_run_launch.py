"""``holdfast launch`` in the nodes of a run on this machine."""

import sys
from datetime import UTC, datetime, timedelta

from holdfast.adapters.local.faults import power_off, write_kernel_line, xid_line

LAUNCHED = """
import os, pathlib, sys, time
folder = pathlib.Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
names = ("HOLDFAST_ATTEMPT", "HOLDFAST_LAUNCH_ROUND", "RANK")
name = ".".join(os.environ[name] for name in names)
(folder / name).write_text(os.environ["PET_NODE_REPORT"])
while not (folder / "finish").exists():
    if (folder / f"exit.{name}").exists():
        sys.exit(5)
    time.sleep(0.01)
"""


def test_holdfast_launch_restarts_ranks_in_place_and_a_lost_node_restarts_the_job(run, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(LAUNCHED, encoding="utf-8")
    launch = (sys.executable, "-m", "holdfast", "launch", script)
    places = ("--nodes", "2", "--spares", "1", "--nproc-per-node", "2")
    run.start(*places, "--", *map(str, launch))

    def wait_for_ranks(attempt, number):
        started = lambda: len(list(run.dir.checkpoints.glob(f"{attempt}.{number}.*"))) == 4  # noqa: E731
        run.wait_until(f"round {number} of attempt {attempt}", started)

    wait_for_ranks(1, 1)
    (run.dir.checkpoints / "exit.1.1.3").touch()
    wait_for_ranks(1, 2)
    record = run.record()
    assert (record.attempt, record.app_retries) == (1, 0)
    power_off(run.dir.node(record.placement[1]))
    wait_for_ranks(2, 1)
    record = run.record()
    assert (record.hardware_retries, record.app_retries) == (1, 0)
    (run.dir.checkpoints / "finish").touch()

    assert run.finish()[0] == 0


def test_ranks_that_fail_with_a_fault_of_their_node_do_not_restart_in_place(run, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(LAUNCHED, encoding="utf-8")
    places = ("--nodes", "2", "--spares", "1", "--nproc-per-node", "2")
    run.start(*places, "--", sys.executable, "-m", "holdfast", "launch", str(script))
    ranks = lambda attempt: list(run.dir.checkpoints.glob(f"{attempt}.1.*"))  # noqa: E731
    run.wait_until("attempt 1", lambda: len(ranks(1)) == 4)
    report = run.dir.node(run.record().placement[1]).report
    given = run.dir.checkpoints / "1.1.3"
    run.wait_until("the variable", lambda: given.read_text() == str(report))

    node, uptime = run.dir.node(run.record().placement[1]), timedelta(seconds=100)
    line = xid_line(74, "0000:b9:00", "some text")
    write_kernel_line(node, line, now=datetime.now(UTC), since_boot=uptime)
    run.wait_until("report", lambda: not report.exists() or '"code": 74' in report.read_text())
    (run.dir.checkpoints / "exit.1.1.3").touch()
    run.wait_until("attempt 2", lambda: len(ranks(2)) == 4)
    (run.dir.checkpoints / "finish").touch()

    assert run.finish()[0] == 0
    assert "RanksRestarted: in-place" not in run.dir.log(1, 0).read_text()
    assert run.record().hardware_retries == 1
