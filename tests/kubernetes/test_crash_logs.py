"""Reasons of containers that left no termination message, read at the end of their logs."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
from job_objects import NO_SPACE, a_pod_object, container, ended
from small_server import SmallServer, small_server

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.jobs.crash_logs import CrashLogs
from holdfast.adapters.kubernetes.jobs.objects import PodRank, PodState, pod_state
from holdfast.decisions.failure_signatures import cause_of
from holdfast.model.names import Cause

FULL = "OSError: [Errno 28] No space left on device"


@dataclass
class Logs:
    server: SmallServer
    crash_logs: CrashLogs
    acts: bool = True

    def failed(self, rank: int = 0, *, log: str = NO_SPACE, at: float = 20) -> PodState:
        pod = failed(rank, at=at)
        self.server.logs[pod.path, False] = log
        return pod

    def reasons(self, *pods: PodState) -> list[str]:
        found = self.crash_logs.explained(pods)
        assert [pod.uid for pod in found] == [pod.uid for pod in pods]
        return [pod.exit.reason for pod in found if pod.exit is not None]


def failed(rank: int = 0, *, at: float = 20, **changes: Any) -> PodState:
    status = container(state=ended(1, at))
    return state_of(a_pod_object(rank, phase="Failed", status=status, **changes), rank)


def state_of(pod: dict[str, Any], rank: int = 0) -> PodState:
    return pod_state(pod, PodRank(job="llama", rank=rank, container="pytorch"))


@pytest.fixture
def logs() -> Iterator[Logs]:
    with (
        small_server() as server,
        closing(Api(Server(url=server.url), user_agent="test", field_manager="test")) as api,
    ):
        logs = Logs(server, CrashLogs(api, lambda: logs.acts))
        yield logs


def test_the_exception_at_the_end_of_the_log_is_the_reason_and_is_read_once(logs: Logs) -> None:
    pod = logs.failed(log=f"step 1\nstep 2\n{NO_SPACE}")

    assert logs.reasons(pod) == logs.reasons(pod) == [FULL]

    assert logs.server.logs_read == [(pod.path, False)]
    assert cause_of(FULL) is Cause.DISK_FULL


def test_a_log_without_an_exception_has_its_last_line(logs: Logs) -> None:
    assert logs.reasons(logs.failed(log="step 1\nstep 2\n\n")) == ["step 2"]


@pytest.mark.parametrize(
    "status",
    [
        {"state": {"terminated": {"exitCode": 1, "reason": "Error", "message": "it says why"}}},
        {"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}},
        {"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
    ],
)
def test_no_log_is_read_of_a_container_whose_exit_is_explained(
    logs: Logs, status: dict[str, Any]
) -> None:
    pod = state_of(a_pod_object(phase="Failed", status=container(**status)))
    logs.server.logs[pod.path, False] = NO_SPACE

    assert FULL not in logs.reasons(pod)
    assert logs.server.logs_read == []


def test_no_log_is_read_of_a_pod_that_was_deleted(logs: Logs) -> None:
    pod = failed(deletionTimestamp="2026-01-01T12:00:30Z", deletionGracePeriodSeconds=5)

    assert logs.reasons(pod) == [""]
    assert logs.server.logs_read == []


@pytest.mark.parametrize("previous", [True, False])
def test_a_container_that_was_started_again_has_the_log_of_its_last_run(
    logs: Logs, previous: bool
) -> None:
    status = container(state={"running": {}}, lastState=ended(1))
    pod = state_of(a_pod_object(status=status))
    logs.server.logs[pod.path, previous] = NO_SPACE  # not previous: it is about to be started

    assert logs.reasons(pod) == [FULL]


def test_each_exit_of_a_container_has_a_log_of_its_own(logs: Logs) -> None:
    first, second = (
        state_of(a_pod_object(status=container(state={"running": {}}, lastState=ended(1, at))))
        for at in (20, 30)
    )
    logs.server.logs[first.path, True] = NO_SPACE
    assert logs.reasons(first) == [FULL]
    logs.server.logs[first.path, True] = "ValueError: another"

    assert logs.reasons(second) == ["ValueError: another"]


def test_only_the_leader_reads_logs(logs: Logs) -> None:
    pod = logs.failed()
    logs.acts = False
    assert (logs.reasons(pod), logs.server.logs_read) == ([""], [])

    logs.acts = True

    assert logs.reasons(pod) == [FULL]


def test_the_logs_of_the_first_failures_are_read_not_those_of_thousands(logs: Logs) -> None:
    pods = [logs.failed(rank, at=100 - rank) for rank in range(10)]

    reasons = logs.reasons(*pods)

    assert reasons == [""] * 6 + [FULL] * 4
    assert {path for path, _ in logs.server.logs_read} == {pod.path for pod in pods[6:]}


def test_a_log_that_cannot_be_read_leaves_the_exit_without_a_reason(logs: Logs) -> None:
    assert logs.reasons(failed()) == [""]
