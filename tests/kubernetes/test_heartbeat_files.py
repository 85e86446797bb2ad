"""The files that ranks touch as they get on, asked for in pods through a real API server."""

import os
import subprocess
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from job_objects import a_state, requests
from machines import stays
from real_cluster import Cluster, until

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.jobs.hang_watch import HangWatch, Watched
from holdfast.adapters.kubernetes.jobs.heartbeat_file import HeartbeatFile
from holdfast.adapters.kubernetes.jobs.heartbeat_settings import DEFAULT_TIMEOUT, Heartbeat
from holdfast.adapters.kubernetes.jobs.objects import PodRank, PodState, pod_state
from holdfast.apps.clock import SystemClock
from holdfast.model.names import (
    FAULT_GRACE,
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    KEEP_PODS,
    STARTUP_TIMEOUT,
)
from tests.engines.kubelet import PodServer

NAMESPACE = "/api/v1/namespaces/default"
PATH = "/run/the heartbeat"
HEARTBEAT = Heartbeat(path=PATH, timeout=timedelta(seconds=4))
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)


class Ranks:
    """Two pods whose files are in folders of this machine."""

    def __init__(self, folder: Path, kubelet: PodServer) -> None:
        self.folder = folder
        self.kubelet = kubelet
        self.requested: list[str] = []
        self.answers: dict[str, tuple[str, str, int]] = {}
        for name in ("p0", "p1"):
            (folder / name / "run").mkdir(parents=True)
        kubelet.run = self.run

    def run(self, pod: str, command: Sequence[str]) -> tuple[str, str, int]:
        self.requested.append(pod)
        if pod in self.answers:
            return self.answers[pod]
        own = [word.replace(PATH, f"{self.folder}/{pod}{PATH}") for word in command]
        done = subprocess.run(own, check=False, capture_output=True, text=True)
        return done.stdout, done.stderr, done.returncode

    def touch(self, pod: str, age: float = 0) -> None:
        file = Path(f"{self.folder}/{pod}{PATH}")
        file.touch()
        os.utime(file, (time.time() - age,) * 2)


@pytest.fixture
def ranks(kubelet: PodServer, tmp_path: Path) -> Ranks:
    return Ranks(tmp_path, kubelet)


@pytest.fixture
def pods(api: Api, cluster: Cluster, ranks: Ranks) -> tuple[PodState, ...]:
    cluster.nodes.join("a")
    ranks.kubelet.serve("a")
    spec = {"nodeName": "a", "containers": [{"name": "train", "image": "none"}]}
    for name in ("p0", "p1"):
        api.create(f"{NAMESPACE}/pods", {"metadata": {"name": name}, "spec": spec})
    paths = [f"{NAMESPACE}/pods/{name}" for name in ("p0", "p1")]
    until(lambda: all(api.get(path)["status"].get("phase") == "Running" for path in paths))
    return tuple(
        pod_state(api.get(path), PodRank(job="j", rank=rank, container=""))
        for rank, path in enumerate(paths)
    )


def requested(
    api: Api,
    pods: Sequence[PodState],
    ranks: Ranks,
    *,
    since: datetime = LONG_AGO,
    heartbeat: Heartbeat = HEARTBEAT,
) -> HeartbeatFile:
    """Each rank has answered once."""
    found = HeartbeatFile(api, SystemClock(), heartbeat, since)
    ranks.requested.clear()
    found.request_read(pods)
    until(lambda: sorted(ranks.requested) == ["p0", "p1"])
    found.join()
    return found


def test_a_job_hangs_when_no_rank_touches_its_file_any_more(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    ranks.touch("p0", age=60)
    ranks.touch("p1", age=30)

    hang = requested(api, pods, ranks).hang()

    assert hang is not None
    assert hang.reason == "HeartbeatStopped"
    age = datetime.now(UTC) - hang.since
    assert timedelta(seconds=29) < age < timedelta(seconds=90), "of the rank that was last"
    assert hang.evidence.startswith(f"no rank touched {PATH} for 4s, last at 20")


def test_one_rank_that_gets_on_is_enough(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    ranks.touch("p0", age=60)
    ranks.touch("p1", age=-60)  # a clock that was set back meanwhile

    assert requested(api, pods, ranks).hang() is None


def test_a_job_that_has_touched_no_file_yet_may_still_load(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    found = requested(api, pods, ranks)

    assert (found.hang(), found.error) == (None, "")
    assert found.unwatched == (
        f"no rank touched {PATH} yet: holdfast.dev/heartbeat-timeout takes effect with the first "
        "heartbeat; to restart a job that hangs before it, set holdfast.dev/startup-timeout"
    )


def test_a_job_is_watched_from_its_first_heartbeat_on_or_if_its_startup_is_limited(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    limited = replace(HEARTBEAT, startup_timeout=timedelta(days=999))

    assert requested(api, pods, ranks, heartbeat=limited).unwatched == ""
    assert requested(api, pods, ranks, since=datetime.now(UTC)).unwatched == ""
    ranks.touch("p0")
    assert requested(api, pods, ranks).unwatched == ""


def test_what_an_attempt_before_has_left_is_no_heartbeat(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    ranks.touch("p0", age=60)

    since = datetime.now(UTC) - timedelta(seconds=30)
    assert requested(api, pods, ranks, since=since).hang() is None


def test_a_startup_that_is_limited_is_a_hang_when_it_takes_longer(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    limited = replace(HEARTBEAT, startup_timeout=timedelta(minutes=1))
    late = datetime.now(UTC) - timedelta(minutes=2)

    found = requested(api, pods, ranks, since=late, heartbeat=limited).hang()

    assert found is not None
    assert (found.reason, found.since) == ("HeartbeatStopped", late)
    assert found.evidence == f"no rank touched {PATH} within 1m of the start of the attempt"
    early = datetime.now(UTC) - timedelta(seconds=30)
    assert requested(api, pods, ranks, since=early, heartbeat=limited).hang() is None


@pytest.mark.parametrize(
    "answer", [("", "sh: not found", 127), ("soon", "", 0), ("1" * 11, "", 0), ("7\n8", "", 0)]
)
def test_nobody_hangs_while_a_rank_does_not_answer(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks, answer: tuple[str, str, int]
) -> None:
    ranks.touch("p0", age=60)
    ranks.answers["p1"] = answer

    found = requested(api, pods, ranks)

    assert found.hang() is None
    assert found.error.startswith("the heartbeat of p1 cannot be read: ")


def test_a_hang_is_reported_by_the_watch_and_is_over_when_the_file_is_touched(
    api: Api, pods: tuple[PodState, ...], ranks: Ranks
) -> None:
    reported: list[object] = []
    watch = HangWatch(
        api, SystemClock(), lambda: reported.append(1), captures_stacks=False, reads_heartbeats=True
    )
    job = Watched(
        job=a_state(),
        attempt=1,
        started_at=datetime.now(UTC) - timedelta(minutes=1),
        rules=(),
        rules_from="",
        heartbeat=HEARTBEAT,
        pods=pods,
    )
    watch.follow([job])
    watch.start()
    try:
        until(lambda: watch.findings(job.job.uid).unwatched != "")
        assert reported
        ranks.touch("p0")
        until(lambda: watch.hang(job.job.uid) is not None)
        assert watch.findings(job.job.uid).unwatched == ""
        assert len(ranks.requested) >= 4, "often enough not to be late"
        ranks.touch("p1")
        until(lambda: watch.hang(job.job.uid) is None)
        watch.follow([replace(job, attempt=2)])
        assert watch.hang(job.job.uid) is None
        stays(lambda: watch.rejected(job.job.uid) == (), 0.1)
    finally:
        watch.stop()


def test_a_controller_that_may_not_look_says_so(api: Api) -> None:
    watch = HangWatch(
        api, SystemClock(), lambda: None, captures_stacks=False, reads_heartbeats=False
    )
    job = Watched(
        job=a_state(), attempt=1, started_at=LONG_AGO, rules=(), rules_from="",
        heartbeat=HEARTBEAT, pods=(),
    )  # fmt: skip

    watch.follow([job])

    (rejected,) = watch.rejected(job.job.uid)
    assert (rejected.key, rejected.value) == (HEARTBEAT_FILE, PATH)
    assert "kubernetes.read_heartbeats is false" in rejected.expected


@pytest.mark.parametrize(
    ("timeout", "expected"),
    [
        (None, DEFAULT_TIMEOUT),
        ("1s", timedelta(seconds=1)),
        (" 90s ", timedelta(seconds=90)),
        ("7d", timedelta(days=7)),
    ],
)
def test_a_file_and_a_time_can_be_asked_for(timeout: str | None, expected: timedelta) -> None:
    annotations = {HEARTBEAT_FILE: "/tmp/beat", HEARTBEAT_TIMEOUT: timeout}
    found = requests(a_state(annotations=annotations))

    assert found.heartbeat == Heartbeat(path="/tmp/beat", timeout=expected)
    assert found.rejected == ()


@pytest.mark.parametrize(
    ("given", "rejected"),
    [
        ({HEARTBEAT_FILE: "/tmp/beat", STARTUP_TIMEOUT: "1h"}, []),
        ({HEARTBEAT_FILE: "/tmp/beat", STARTUP_TIMEOUT: "soon"}, [STARTUP_TIMEOUT]),
        ({STARTUP_TIMEOUT: "1h"}, [STARTUP_TIMEOUT]),
    ],
)
def test_the_startup_can_be_limited(given: dict[str, str], rejected: list[str]) -> None:
    found = requests(a_state(annotations=given))

    limit = found.heartbeat.startup_timeout if found.heartbeat else None
    assert limit == (None if rejected else timedelta(hours=1))
    assert [one.key for one in found.rejected] == rejected


@pytest.mark.parametrize(
    ("file", "timeout", "key"),
    [
        ("beat", None, HEARTBEAT_FILE),
        ("", None, HEARTBEAT_FILE),
        ("/a\nb", None, HEARTBEAT_FILE),
        ("/" + "a" * 256, None, HEARTBEAT_FILE),
        ("/beat", "", HEARTBEAT_TIMEOUT),
        ("/beat", "yes", HEARTBEAT_TIMEOUT),
        ("/beat", "0.9s", HEARTBEAT_TIMEOUT),
        ("/beat", "8d", HEARTBEAT_TIMEOUT),
        ("/beat", "9" * 400 + "s", HEARTBEAT_TIMEOUT),
        (None, "5m", HEARTBEAT_TIMEOUT),
    ],
)
def test_a_request_with_a_mistake_is_reported_and_left_out(
    file: str | None, timeout: str | None, key: str
) -> None:
    found = requests(a_state(annotations={HEARTBEAT_FILE: file, HEARTBEAT_TIMEOUT: timeout}))

    assert found.heartbeat is None
    assert [one.key for one in found.rejected] == [key]
    assert found.auto_resume, "the rest holds"


@pytest.mark.parametrize(
    ("text", "keeps"), [("true", True), (" False ", False), ("", False), ("yes", None)]
)
def test_a_job_of_launchers_keeps_its_pods(text: str, keeps: bool | None) -> None:
    found = requests(a_state(annotations={KEEP_PODS: text}))

    assert found.keeps_pods is (keeps or False)
    assert [one.key for one in found.rejected] == ([KEEP_PODS] if keeps is None else [])


@pytest.mark.parametrize(
    ("text", "grace"),
    [("2m", timedelta(minutes=2)), (" 1s ", timedelta(seconds=1)), ("0s", None), ("x", None)],
)
def test_a_job_sets_its_grace_period_after_faults(text: str, grace: timedelta | None) -> None:
    found = requests(a_state(annotations={FAULT_GRACE: text}))

    assert found.fault_grace == grace
    assert [one.key for one in found.rejected] == ([] if grace else [FAULT_GRACE])
