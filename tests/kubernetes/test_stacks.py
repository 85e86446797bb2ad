"""Stacks of ranks that hang, through a real API server."""

import os
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from controlled import api_of
from job_objects import a_state
from launch.recorded_ranks import dump, entry, rank
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Forbidden
from holdfast.adapters.kubernetes.client.pod_exec import PodOutput, run_in_pod
from holdfast.adapters.kubernetes.client.values import EPOCH
from holdfast.adapters.kubernetes.jobs.attempt_findings import Findings
from holdfast.adapters.kubernetes.jobs.objects import PodRank, PodState, pod_state
from holdfast.adapters.kubernetes.jobs.stacks import (
    SIZE,
    AttemptStacks,
    StackCapture,
    unpacked_evidence,
)
from holdfast.decisions.hangs import Hang
from holdfast.decisions.stack_dumps import COMMAND
from holdfast.decisions.step_progress import SuspectedHang
from holdfast.kit.masking import MASK
from holdfast.model.names import Reason
from tests.engines.kubelet import PodServer

NAMESPACE = "/api/v1/namespaces/default"
SECOND = timedelta(seconds=1)


@pytest.fixture
def pods(api: Api, cluster: Cluster, kubelet: PodServer) -> list[PodState]:
    cluster.nodes.join("a")
    kubelet.serve("a")
    spec = {"nodeName": "a", "containers": [{"name": "train", "image": "none"}]}
    paths = [f"{NAMESPACE}/pods/p{number}" for number in (0, 1)]
    for name in ("p0", "p1"):
        api.create(f"{NAMESPACE}/pods", {"metadata": {"name": name}, "spec": spec})
    until(lambda: all(api.get(path)["status"].get("phase") == "Running" for path in paths))
    return [
        pod_state(api.get(path), PodRank(job="j", rank=number, container=""))
        for number, path in enumerate(paths)
    ]


def ran(api: Api, pod: PodState, *command: str, limit: int = 10**6) -> PodOutput:
    return run_in_pod(api, pod.path, pod.container, command, within=SECOND, limit=limit)


@pytest.mark.parametrize("size", [0, 1, 124, 125, 999, 1000, 70_000])
def test_what_a_command_says_is_read_whatever_its_size(
    api: Api, kubelet: PodServer, pods: list[PodState], size: int
):
    kubelet.run = lambda pod, command: (f"{pod} {command}".ljust(size, "é"), "", 0)

    found = ran(api, pods[1], "sh", "-c", "a & b? c=%20")

    assert found == PodOutput("p1 ['sh', '-c', 'a & b? c=%20']".ljust(size, "é"), "")


def test_a_command_that_fails_says_why(api: Api, kubelet: PodServer, pods: list[PodState]):
    kubelet.run = lambda pod, command: ("half", "no such thing\n", 3)

    found = ran(api, pods[0], "x")

    assert found.text == "half"
    assert found.error.endswith("exit status 3: no such thing")


def test_no_more_is_kept_than_was_asked_for(api: Api, kubelet: PodServer, pods: list[PodState]):
    kubelet.run = lambda pod, command: ("x" * 5000, "y" * 5000, 1)

    found = ran(api, pods[0], "x", limit=1500)

    assert found.text == "x" * 1500
    assert found.error.endswith(": " + "y" * 1500)


def test_a_command_that_does_not_end_is_left(api: Api, kubelet: PodServer, pods: list[PodState]):
    over = threading.Event()
    kubelet.run = lambda pod, command: ("", "", int(over.wait(30)))

    assert ran(api, pods[0], "x") == PodOutput("", "the command did not end within 1 s")
    over.set()


def test_a_node_that_hangs_up_is_reported(api: Api, kubelet: PodServer, pods: list[PodState]):
    def dies(pod: str, command: Sequence[str]):
        raise ConnectionResetError

    kubelet.run = dies

    assert "/pods/p0/exec" in ran(api, pods[0], "x").error


def captured(api: Api, pods: Sequence[PodState]) -> str:
    """The job is a pod: Kubernetes removes what belongs to a job that is not there."""
    owner = {"uid": pods[0].uid} if pods else {}
    job = replace(a_state(), api_version="v1", kind="Pod", name="p0", **owner)
    capture = StackCapture(api, job, 3, pods)
    capture.start()
    until(lambda: capture.reported)
    return capture.reported


def test_the_stacks_of_all_ranks_are_kept_beside_the_job(
    api: Api, kubelet: PodServer, pods: list[PodState]
):
    kubelet.run = lambda pod, command: (f"{pod}: in all_reduce", "", 0)

    assert captured(api, pods) == "stacks are in ConfigMap p0-stacks-attempt-3"

    found = api.get(f"{NAMESPACE}/configmaps/p0-stacks-attempt-3")
    assert found["data"] == {"p0": "p0: in all_reduce", "p1": "p1: in all_reduce"}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Pod", "p0")


RANK = """== pid=9 ppid=1 state=S wchan=0 rank={rank}
Process 9: train --token hunter2
Python v3.11.2 (x)
Thread 9 (idle): "MainThread"
    {function}
== end"""


def test_the_evidence_of_a_hang_is_kept_with_the_stacks(
    api: Api, kubelet: PodServer, pods: list[PodState]
):
    waits = "all_reduce (/x/torch/distributed/distributed_c10d.py:1)"
    reads = "reads (/w/train.py:7)"
    kubelet.run = lambda pod, command: (
        RANK.format(rank=pod[1:], function=waits if pod == "p0" else reads),
        "",
        0,
    )

    assert captured(api, pods).startswith("rank 1 on a never entered all_reduce")

    found = api.get(f"{NAMESPACE}/configmaps/p0-stacks-attempt-3")
    kept = unpacked_evidence(found)
    assert (kept.attempt, kept.verdict.ranks) == (3, (1,))
    assert [one.snapshot.node for one in kept.ranks] == ["a", "a"]
    found["binaryData"]["evidence.json.gz"] = "AAAA"
    for damaged in (found, {"data": {}}, {"binaryData": {"evidence.json.gz": 7}}):
        with pytest.raises(ValueError, match=r"."):
            unpacked_evidence(damaged)


def test_a_suspected_hang_is_reported_with_its_stacks_and_each_hang_has_its_own(
    api: Api, kubelet: PodServer, pods: list[PodState]
):
    waits = {"function": "all_reduce (/x/torch/distributed/distributed_c10d.py:1)"}
    kubelet.run = lambda pod, command: (RANK.format(rank=pod[1:], **waits), "", 0)
    job = replace(a_state(), api_version="v1", kind="Pod", name="p0", uid=pods[0].uid)
    stacks = AttemptStacks(api, job, 4)
    suspected = Findings(suspected=SuspectedHang(since=EPOCH, step=7, evidence="no new step"))
    hung = Findings(
        hang=Hang(reason=Reason.JOB_HUNG, since=EPOCH, at=EPOCH, evidence="no new line")
    )

    def said(found: Findings) -> str:
        until(lambda: stacks.added_to(found, pods, EPOCH) != Findings())
        shown = stacks.added_to(found, pods, EPOCH)
        return (shown.hang or shown.suspected).evidence

    assert stacks.added_to(Findings(), pods, EPOCH) == Findings()
    assert said(suspected).startswith("no new step; all 2 ranks that could be read wait in")
    waits["function"] = "reads (/w/train.py:7)"
    assert said(hung).startswith("no new line; ranks 0, 1 are outside of collectives")
    late = AttemptStacks(api, job, 5)
    kubelet.run = lambda pod, command: ("", "", int(threading.Event().wait(2)))
    assert late.added_to(hung, pods, EPOCH).hang is None
    later = late.added_to(hung, pods, EPOCH + timedelta(seconds=10))
    assert later.hang.evidence == "no new line; no stacks within 10 s"


def test_pods_that_do_not_respond_in_time_are_asked_again_unless_a_restart_waits(
    api: Api, kubelet: PodServer, pods: list[PodState]
):
    waits = "all_reduce (/x/torch/distributed/distributed_c10d.py:1)"
    over, asked = threading.Event(), []

    def answers(pod: str, command: Sequence[str]) -> tuple[str, str, int]:
        if tuple(command) != COMMAND:
            return "", "", 0
        asked.append(pod)
        if pod == "p1" and asked.count(pod) <= 2:
            over.wait(60)
        function = waits if pod == "p0" else "reads (/w/train.py:7)"
        return RANK.format(rank=pod[1:], function=function), "", 0

    kubelet.run = answers
    job = replace(a_state(), api_version="v1", kind="Pod", name="p0", uid=pods[0].uid)
    reports = StackCapture(api, job, 3, pods)
    restarts = StackCapture(api, job, 4, pods, restarts=True)
    for one in (reports, restarts):
        one.start()
    until(lambda: reports.reported and restarts.reported)
    over.set()

    assert reports.reported.startswith("rank 1 on a never entered all_reduce")
    assert restarts.reported.startswith("all 1 ranks that could be read wait in all_reduce")
    assert [asked.count(pod) for pod in ("p0", "p1")] == [3, 3]
    found = api.get(f"{NAMESPACE}/configmaps/p0-stacks-attempt-3")
    assert found["data"].keys() == {"p0", "p1"}


def test_flight_recorders_of_the_ranks_are_read_in_their_pods(
    api: Api, kubelet: PodServer, pods: list[PodState], tmp_path: Path
):
    """Also without py-spy. The command runs beside real processes, without Holdfast."""
    folders = [tmp_path / pod.name for pod in pods]
    for folder in folders:
        folder.mkdir()

    def answers(pod: str, command: Sequence[str]) -> tuple[str, str, int]:
        if tuple(command) == COMMAND:
            return "", "sh: py-spy: not found", 127
        environment = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": str(tmp_path / pod)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout, done.stderr, done.returncode

    kubelet.run = answers
    with (
        rank(0, folders[0], dump(entry(1), entry(2, "started"))),
        rank(1, folders[1], dump(entry(1))),
    ):
        reported = captured(api, pods)

    found = "flight recorder: rank 1 never entered all_reduce 2 of default_pg, called by main"
    assert reported.startswith(f"no rank could be read; {found} (train.py:7); no stacks: p0: ")


def test_secrets_in_command_lines_are_masked(api: Api, kubelet: PodServer, pods: list[PodState]):
    text = "== pid=9 ppid=1 state=S wchan=0\nProcess 9: train --token hunter2\nPython v3.11.2 (x)"
    kubelet.run = lambda pod, command: (text, "hf_abcdefghijkl is not valid", 1)

    captured(api, pods)

    found = api.get(f"{NAMESPACE}/configmaps/p0-stacks-attempt-3")["data"]["p0"]
    assert f"Process 9: train --token {MASK}\nPython v3.11.2 (x)" in found
    assert "hunter2" not in found
    assert "hf_abcdef" not in found


DUMP = """== pid=9 ppid=1 state=S wchan=futex_do_wait rank={rank} launched
Process 9: python train.py
Python v3.11.2 (/usr/bin/python3.11)

Thread 9 (idle): "MainThread"
    {frame}
    main (/app/train.py:20)
"""
FRAMES = (
    "all_reduce (/env/site-packages/torch/distributed/distributed_c10d.py:9)",
    "read (/w/a.py:3)",
)


def test_the_rank_for_which_the_others_wait_is_named(
    api: Api, kubelet: PodServer, pods: list[PodState]
):
    kubelet.run = lambda pod, command: (
        DUMP.format(rank=pod[1:], frame=FRAMES[int(pod[1:])]), "", 0
    )  # fmt: skip

    assert captured(api, pods) == (
        "rank 1 on a never entered all_reduce: it is in read (a.py:3); the other rank waits; "
        "stacks are in ConfigMap p0-stacks-attempt-3"
    )


def test_stacks_that_are_there_already_stay(api: Api, kubelet: PodServer, pods: list[PodState]):
    kubelet.run = lambda pod, command: ("first", "", 0)
    captured(api, pods)
    kubelet.run = lambda pod, command: ("second", "", 0)

    assert captured(api, pods) == "stacks are in ConfigMap p0-stacks-attempt-3"
    found = api.get(f"{NAMESPACE}/configmaps/p0-stacks-attempt-3")
    assert found["data"] == {"p0": "first", "p1": "first"}


def test_stacks_of_some_ranks_are_better_than_none(
    api: Api, kubelet: PodServer, pods: list[PodState]
):
    kubelet.run = lambda pod, command: ("x" * SIZE if pod == "p1" else "", "denied", 1)

    captured(api, pods)

    (text,) = api.get(f"{NAMESPACE}/configmaps/p0-stacks-attempt-3")["data"].values()
    assert text.startswith("x" * (SIZE // 2) + "\ncommand terminated")


@pytest.mark.parametrize(
    ("answer", "why"),
    [(("", "sh: py-spy: not found", 127), "py-spy: not found"), (("", "", 0), "no Python process")],
)
def test_why_there_are_no_stacks_is_reported(
    api: Api, kubelet: PodServer, pods: list[PodState], answer, why: str
):
    kubelet.run = lambda pod, command: answer

    reported = captured(api, pods)

    assert reported.startswith("no stacks: p0: ")
    assert why in reported
    assert captured(api, []) == "no stacks: no pod runs"


def test_without_the_right_to_run_commands_the_right_that_is_missing_is_reported(
    cluster: Cluster, kubelet: PodServer, pods: list[PodState]
):
    account = {"metadata": {"name": "nobody"}}
    cluster.plane.request("POST", f"{NAMESPACE}/serviceaccounts", account)
    api = api_of(cluster, cluster.plane.service_account_token("default", "nobody"))

    with pytest.raises(Forbidden):
        ran(api, pods[0], "x")
    assert "pods/exec" in captured(api, pods)
    api.close()


def test_every_python_process_is_looked_at(tmp_path: Path):
    played = tmp_path / "py-spy"
    played.write_text("#!/bin/sh\necho played $*\n", encoding="utf-8")
    played.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}

    done = subprocess.run(COMMAND, env=environment, capture_output=True, check=False)

    assert (
        f"played dump --pid {os.getpid()} --full-filenames --nonblocking"
        in done.stdout.decode().splitlines()
    )


def test_an_image_without_py_spy_is_distinguished_from_one_without_python(tmp_path: Path):
    alone = tmp_path / "python"
    alone.write_bytes(Path("/bin/sleep").read_bytes())
    alone.chmod(0o755)
    with subprocess.Popen([alone, "100"]) as process:
        command = [one.replace("/proc/[0-9]*", f"/proc/{process.pid}") for one in COMMAND]
        done = subprocess.run(
            command, env={"PATH": "/usr/bin:/bin"}, capture_output=True, check=False
        )
        process.kill()

    assert done.returncode == 127
    assert b"py-spy" in done.stderr
