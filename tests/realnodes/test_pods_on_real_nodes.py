"""Commands in real pods: a shell on a node, stacks of ranks that hang, and their heartbeats."""

import json
import re
import subprocess
import sys

from phases import Phases
from site_of_nodes import Site
from training_job import TrainingJob

from holdfast.model.names import (
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    LOG_MONITORING,
    LOSS_ACTION,
    SKIP_STEPS,
)

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PY_SPY = '#!/bin/sh\necho "Process $3: python -c"\necho "Thread 0x1: MainThread"\n'
"""Stands for a program that comes with the images of jobs."""


def shell(site: Site, node: str, *command: str) -> subprocess.CompletedProcess[str]:
    options = ("--platform", "kubernetes", "--kubeconfig", str(site.kubeconfig))
    return subprocess.run(
        [sys.executable, "-m", "holdfast", "nodes", "shell", node, *options, "--", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def failures(job: TrainingJob) -> list[tuple[str, str]]:
    return [
        (one["failure"]["kind"], one["failure"]["reason"]) for one in job.record.get("attempts", ())
    ]


def test_a_shell_on_a_node_is_roots_and_the_nodes(site: Site) -> None:
    node = site.cluster.nodes[site.in_service()[0]]
    command = 'id -u; hostname; cat /proc/sys/kernel/random/boot_id; echo "no" >&2; exit 7'

    done = shell(site, node.name, "sh", "-c", command)

    assert done.stdout.splitlines() == ["0", node.name, node.boot_id], done.stderr
    assert "no" in done.stderr
    assert done.returncode == 7
    assert site.pods("app.kubernetes.io/component=shell", "holdfast") == []


def test_stacks_are_captured_before_a_job_that_hangs_is_restarted(
    site: Site, phases: Phases
) -> None:
    rule = {"name": "Steps", "logPattern": "step", "expectedRecurringFrequencyInSeconds": 3}
    job = site.submit(
        "stuck",
        annotations={LOG_MONITORING: json.dumps([rule])},
        environment={"PATH": "/shared:/usr/local/bin:/usr/bin:/bin"},
    )
    program = job.folder / "py-spy"
    program.write_text(PY_SPY, encoding="utf-8")
    program.chmod(0o755)
    job.until_training(1)

    phases.begin()
    (job.folder / "hangs-1").touch()
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)

    stacks = site.cluster.plane.request("GET", f"{CONFIG_MAPS}/stuck-stacks-attempt-1")["data"]
    assert len(stacks) == job.ranks
    for text in stacks.values():
        assert re.match(r"== pid=1 wchan=\w+\nProcess 1: python -c\nThread 0x1: MainThread", text)
    assert failures(job) == [("application", "LogStateHanging_Steps")]
    phases.record("hang", job)
    job.finish()


def test_a_job_whose_loss_is_nan_on_all_ranks_is_restarted_once(site: Site, phases: Phases) -> None:
    job = site.submit("diverging", annotations={LOSS_ACTION: "skip"})
    job.until_training(1)

    phases.begin()
    (job.folder / "diverges-1").touch()
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)

    assert failures(job) == [("application", "LossNotFinite")]
    step = job.record["attempts"][0]["failure"]["step"]
    told = {
        pod["metadata"]["annotations"].get(SKIP_STEPS)
        for pod in job.pods
        if pod["metadata"]["uid"] in job.places
    }
    assert told == {f"{step - 1},{step}"}
    job.finish()


def test_a_job_whose_heartbeat_files_get_old_is_restarted(site: Site, phases: Phases) -> None:
    beats = {HEARTBEAT_FILE: "/tmp/heartbeat", HEARTBEAT_TIMEOUT: "4s"}
    job = site.submit("silent", annotations=beats)
    job.until_training(1, steps=20)  # ages are whole seconds: let it be sure that it has begun

    phases.begin()
    (job.folder / "hangs-1").touch()
    phases.reach("resumed", lambda: len(job.steps(2)) == job.ranks)

    assert failures(job) == [("application", "HeartbeatStopped")]
    phases.record("heartbeat", job)
    job.finish()
