"""AWS's drill of auto-resume on a real Slurm: an ECC error is reported, then a rank is killed."""

import logging
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

from slurm_fleet_at_work import Fleet, a_fleet, on_both_versions
from supervised_cluster import Supervised, skip_without_compiler

from holdfast.adapters.slurm.nodes.state import RememberedJob
from holdfast.model.jobs import AttemptRecord, FailureKind
from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmCluster, SlurmPrograms

TRAINS = """
srun {options} sh -c '
    echo run ${{SLURM_RESTART_COUNT-0}} on $SLURMD_NODENAME for "[$HOLDFAST_RESTART_REASON]"
    [ -n "$SLURM_RESTART_COUNT" ] || {{ echo $$ > {pid}; exec sleep 600; }}
    exec sleep 5
'
"""
BAD = "node1"
_LOG = logging.getLogger(__name__)


@on_both_versions
def test_a_job_whose_rank_dies_under_a_deferred_fault_is_requeued_at_once(
    programs: SlurmPrograms, tmp_path: Path
) -> None:
    """One job has a supervisor, in the default mode, and one has a plain srun.

    The supervisor's own timeout is much longer than the test may take.
    """
    skip_without_compiler(programs)
    with (
        SlurmCluster(programs, gpus=2, settings={"SuspendTimeout": "1"}) as slurm,
        a_fleet(slurm, tmp_path, dcgm=BAD) as fleet,
    ):
        cluster = Supervised(slurm, programs, tmp_path)
        assert cluster.install().returncode == 0
        cluster.use_times(requeue="10m")
        slurm.run("scontrol", "reconfigure")
        fleet.control(provider=fleet.by_command())
        jobs, pids = {}, {}
        for what, option, request in (
            ("supervised", "--auto-resume=1", ()),
            ("plain", "", ("--comment=auto-resume=1",)),
        ):
            pids[what] = tmp_path / f"{what}.pid"
            script = TRAINS.format(options=option, pid=pids[what])
            jobs[what] = cluster.submit("-N1", "-n1", "--gres=gpu:1", *request, script=script)
            cluster.until_said(jobs[what], f"run 0 on {BAD}")
        fleet.until(lambda: {*jobs.values()} <= remembered(fleet).keys())

        fleet.break_memory()
        fleet.until(lambda: "(deferred)" in fleet.reason(BAD))
        died_at = datetime.now(UTC)
        for pid in pids.values():
            fleet.until(lambda pid=pid: pid.exists() and pid.read_text().strip())
            os.kill(int(pid.read_text()), signal.SIGKILL)

        for what, job in jobs.items():
            cluster.until_said(job, "run 1 on")
            took = datetime.now(UTC) - died_at
            _LOG.info("%s: runs again after %.1f s", what, took.total_seconds())
            fleet.until(lambda job=job: remembered(fleet)[job].record.attempt == 2)
            output = cluster.output(job)
            assert "no response from the controller" not in output
            assert f"run 1 on {BAD}" not in output
            (first,) = remembered(fleet)[job].record.attempts
            is_charged(first)
            assert abs(first.failure.began_at - died_at).total_seconds() < 5  # clocks in seconds
            assert remembered(fleet)[job].record.hardware_retries == 1
        assert f"for [{Reason.GPU_ECC}]" in cluster.output(jobs["supervised"])


def is_charged(attempt: AttemptRecord) -> None:
    failure = attempt.failure
    assert failure is not None
    assert (failure.kind, failure.reason, failure.node) == (
        FailureKind.HARDWARE, Reason.GPU_ECC, BAD,
    )  # fmt: skip


def remembered(fleet: Fleet) -> dict[str, RememberedJob]:
    store = fleet.store()
    try:
        return dict(store.read().jobs)
    finally:
        store.close()
