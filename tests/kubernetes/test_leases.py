import heapq
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import ScriptedServer, break_off, refuse, reply

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.leases import LeaderElection, LeaderElector, LeaseDurations
from tests.engines.control_plane import ControlPlane

TIMEOUT_S = 180.0
WALL = datetime(2026, 1, 1, tzinfo=UTC)
TERMS = LeaseDurations()
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def lease(holder: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "l", "resourceVersion": str(version)},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, **spec},
    }


def elector(identity: str = "me") -> LeaderElector:
    return LeaderElector(identity=identity, durations=TERMS)


# What one candidate may do


def test_a_lease_that_never_was_is_claimed_at_once() -> None:
    assert elector().read(None, 5.0).may_claim(5.0)


@pytest.mark.parametrize("holder", ["", "me", None])
def test_a_lease_that_is_ours_or_nobodys_is_claimed_at_once(holder: Any) -> None:
    assert elector().read(lease(holder), 5.0).may_claim(5.0)
    assert elector().read({"metadata": {}}, 5.0).may_claim(5.0)


def test_anothers_lease_is_claimed_when_it_has_not_changed_for_its_duration() -> None:
    seen = elector().read(lease("other", 1), 100.0).read(lease("other", 1), 114.0)

    assert not seen.may_claim(114.999)
    assert seen.may_claim(115.0)
    assert not seen.read(lease("other", 2), 114.5).may_claim(129.4)


def test_the_longer_of_both_durations_holds() -> None:
    brief = elector().read(lease("other", leaseDurationSeconds=1), 0.0)
    long = elector().read(lease("other", leaseDurationSeconds=60), 0.0)
    absent = elector().read(lease("other", leaseDurationSeconds=None), 0.0)

    assert [seen.may_claim(14.9) for seen in (brief, long, absent)] == [False] * 3
    assert [seen.may_claim(15.0) for seen in (brief, long, absent)] == [True, False, True]
    assert long.may_claim(60.0)


def test_a_lease_that_was_deleted_is_left_to_its_holder_for_its_duration() -> None:
    before = elector().read(lease("other"), 0.0)
    seen = before.read(None, 20.0)

    assert not seen.may_claim(34.9)
    assert seen.read(None, 30.0).may_claim(35.0)
    former = elector("other").read(lease("other"), 0.0).claimed(lease("other", 2), 15.0)
    assert former.read(None, 20.0).may_claim(20.0)
    assert not former.read(None, 25.0).may_claim(39.9)  # perhaps another had it meanwhile
    assert former.read(None, 25.0).may_claim(40.0)
    assert "metadata" not in seen.claim(WALL)  # so it is created


def test_a_claim_counts_from_before_it_was_sent() -> None:
    leader = elector().read(None, 0.0).claimed(lease("me"), 3.0)

    assert not elector().leads(0.0)
    assert leader.leads(12.999)
    assert not leader.leads(13.0)
    assert not leader.resigned().leads(3.0)


def test_a_claim_keeps_what_others_wrote_and_counts_transitions() -> None:
    held = lease("other", 4, leaseTransitions=6, acquireTime="then", strategy="OldestEmulation")
    claim = elector().read(held, 0.0).claim(WALL)

    assert claim == {
        "metadata": {"name": "l", "resourceVersion": "4"},
        "spec": {
            "holderIdentity": "me",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": "2026-01-01T00:00:00.000000Z",
            "leaseTransitions": 7,
            "strategy": "OldestEmulation",
        },
    }
    again = elector().read(claim, 1.0).claim(WALL + timedelta(seconds=2))
    assert again["spec"]["leaseTransitions"] == 7
    assert again["spec"]["acquireTime"] == "2026-01-01T00:00:00.000000Z"
    assert again["spec"]["renewTime"] == "2026-01-01T00:00:02.000000Z"


def test_a_renewal_changes_the_lease_even_if_the_clock_stands_still() -> None:
    held = elector().read(lease("other"), 0.0).claim(WALL)

    assert elector().read(held, 1.0).claim(WALL) != held


@pytest.mark.parametrize(
    "times", [(15, 15, 2), (10, 15, 2), (15, 10, 9), (15, 2, 2), (15, 10, 0), (15, 10, -1)]
)
def test_times_that_do_not_fit_together_are_refused(times: tuple[int, int, int]) -> None:
    duration, deadline, retry = (timedelta(seconds=one) for one in times)

    with pytest.raises(ValueError, match="a lease needs retry"):
        LeaseDurations(duration=duration, renew_deadline=deadline, retry=retry)


# The law: never two leaders at once


@dataclass
class Store:
    """What the API server does: compare and swap."""

    lease: dict[str, Any] | None = None
    version: int = 0

    def write(self, wanted: dict[str, Any]) -> dict[str, Any] | None:
        known = (wanted.get("metadata") or {}).get("resourceVersion")
        held = self.lease and self.lease["metadata"]["resourceVersion"]
        if known != held:
            return None
        if self.lease is not None and self.lease["spec"] == wanted["spec"]:
            return self.lease
        self.version += 1
        metadata = {"name": "l", "resourceVersion": str(self.version)}
        self.lease = {"metadata": metadata, "spec": wanted["spec"]}
        return self.lease


@dataclass
class Replica:
    """A candidate with a clock of its own, which runs ``rate`` times as fast as time."""

    elector: LeaderElector
    rate: float
    offset: float
    wall: float
    step: str = "read"
    carried: Any = None
    sent_at: float = 0.0

    def clock(self, at: float) -> float:
        return self.offset + at * self.rate

    def leads(self, at: float) -> bool:
        return self.elector.leads(self.clock(at))

    @property
    def knows_a_holder(self) -> bool:
        """And has no creation under way that was decided before there was one."""
        is_creating = self.step == "write" and "metadata" not in self.carried
        held = (self.elector.lease or {}).get("spec", {})
        return "holderIdentity" in held and not is_creating


@dataclass
class World:
    """Replicas act in an order that delays, pauses and losses make."""

    replicas: list[Replica]
    store: Store = field(default_factory=Store)

    def act(self, number: int, at: float, *, is_lost: bool) -> None:
        """One of the four moments of a round: at the server, back, at the server, back."""
        one = self.replicas[number]
        match one.step:
            case "read":
                one.carried = self.store.lease
                one.step = "decide"
            case "decide":
                one.step = "read"
                if is_lost:
                    return
                one.elector = one.elector.read(one.carried, one.clock(at))
                if one.elector.may_claim(one.clock(at)):
                    one.sent_at = one.clock(at)
                    wall = WALL + timedelta(seconds=one.wall + at)
                    one.carried = one.elector.claim(wall)
                    one.step = "write"
                else:
                    one.elector = one.elector.resigned()
            case "write":
                one.carried = self.store.write(one.carried)
                one.step = "learn"
            case "learn":
                one.step = "read"
                if not is_lost and one.carried is not None:
                    one.elector = one.elector.claimed(one.carried, one.sent_at)


RATES = st.sampled_from([1.0, 1.0, 1.2, 0.85, 1.49])  # of a slow one to a fast one: below 1.5
DELAYS = st.one_of(
    st.floats(0.001, 0.2),
    st.floats(0.1, 3.0),
    st.floats(5.0, 40.0),  # suspended, swapped out, partitioned
    st.sampled_from([9.99, 10.0, 14.99, 15.0, 15.01]),
)


@given(data=st.data(), count=st.integers(2, 3), is_deleted=st.booleans())
def test_there_are_never_two_leaders_at_once(
    data: st.DataObject, count: int, is_deleted: bool
) -> None:
    slow = data.draw(st.floats(0.5, 2.0))
    replicas = [
        Replica(
            elector=elector(f"r{number}"),
            rate=min(slow * data.draw(RATES), slow * 1.49) if number else slow,
            offset=data.draw(st.floats(-1e6, 1e6)),
            wall=data.draw(st.sampled_from([0.0, -3600.0, 3600.0, -0.001])),
        )
        for number in range(count)
    ]
    slowest = min(one.rate for one in replicas)
    for one in replicas:
        one.rate = min(one.rate, slowest * 1.49)
    world = World(replicas)
    due = [(data.draw(st.floats(0, 20)), number) for number in range(count)]
    heapq.heapify(due)
    for _ in range(data.draw(st.integers(10, 120))):
        at, number = heapq.heappop(due)
        world.act(number, at, is_lost=data.draw(st.sampled_from([False] * 9 + [True])))
        if is_deleted and all(one.knows_a_holder for one in replicas):
            is_deleted = data.draw(st.booleans())
            world.store.lease = world.store.lease if is_deleted else None
        later = at + data.draw(DELAYS)
        heapq.heappush(due, (later, number))
        leaders = [one.elector.identity for one in replicas if one.leads(at)]
        assert len(leaders) <= 1, f"{leaders} lead at {at}"


def test_the_law_is_not_kept_by_having_no_leader() -> None:
    world = World([Replica(elector(name), 1.0, 0.0, 0.0) for name in "ab"])
    leaders = []
    at = 0.0
    for turn in range(2000):
        at += 0.05
        if turn < 1000:  # then a is gone
            world.act(0, at, is_lost=False)
        world.act(1, at, is_lost=False)
        leaders.append([one.elector.identity for one in world.replicas if one.leads(at)])

    assert leaders[500] == ["a"]
    assert leaders[1500] == ["b"]


# The thread


FAST = LeaseDurations(
    duration=timedelta(seconds=1.5),
    renew_deadline=timedelta(seconds=1),
    retry=timedelta(seconds=0.05),
)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.end()


@pytest.fixture
def api(server: ScriptedServer) -> Iterator[Api]:
    api = Api(
        Server(url=server.url), user_agent="t", field_manager="t", timeout=timedelta(seconds=0.5)
    )
    yield api
    api.close()


def election(api: Api, changes: list[str], durations: LeaseDurations = FAST) -> LeaderElection:
    return LeaderElection(
        api,
        namespace="default",
        name="l",
        identity="me",
        changed=lambda: changes.append("changed"),
        durations=durations,
    )


def test_a_new_lease_is_created_renewed_and_released(server: ScriptedServer, api: Api) -> None:
    changes: list[str] = []
    one = election(api, changes)

    def keep(handler: Any) -> None:
        kept.update(server.requested[-1].content)
        kept["metadata"]["resourceVersion"] = str(len(server.requested))
        reply(kept)(handler)

    def give(handler: Any) -> None:
        reply(kept)(handler)

    kept: dict[str, Any] = {}
    server.answers.extend([refuse(404, "NotFound"), keep, *[give, keep] * 500])
    assert not one.leading
    one.start()
    until(lambda: len(server.requested) >= 6)
    assert one.leading
    assert one.holder == "me"
    one.stop()

    assert not one.leading
    assert one.elected == 1
    assert [
        (requested.verb, requested.path.partition("?")[0]) for requested in server.requested[:4]
    ] == [
        ("GET", f"{LEASES}/l"),
        ("POST", LEASES),
        ("GET", f"{LEASES}/l"),
        ("PUT", f"{LEASES}/l"),
    ]
    last = server.requested[-1]
    assert last.verb == "PUT"
    assert last.content["spec"]["holderIdentity"] == ""
    assert last.content["metadata"]["resourceVersion"] != ""
    assert changes == ["changed"]


def test_a_leader_that_cannot_renew_stops_by_itself(server: ScriptedServer, api: Api) -> None:
    changes: list[str] = []
    one = election(api, changes)
    mine = lease("me")
    server.answers.extend([reply(mine), reply(mine), *[break_off()] * 10_000])

    one.start()
    until(lambda: one.leading)
    until(lambda: not one.leading)
    until(lambda: len(changes) == 2)
    until(lambda: "connection" in one.error)  # it tries again, and has none meanwhile
    one.stop()


def test_who_loses_the_race_does_not_lead(server: ScriptedServer, api: Api) -> None:
    changes: list[str] = []
    one = election(api, changes)
    lost = [reply(lease("")), refuse(409, "Conflict")]
    server.answers.extend([refuse(404), refuse(409, "AlreadyExists"), *lost * 3])
    server.answers.extend([reply(lease("other", version)) for version in range(1000)])

    one.start()
    until(lambda: len(server.requested) > 12)
    assert not one.leading
    assert one.holder == "other"
    one.stop()

    assert server.requested[-1].verb == "GET"  # nothing of ours to release
    assert changes == []


def test_a_leader_that_sees_another_stops_at_once(server: ScriptedServer, api: Api) -> None:
    changes: list[str] = []
    patient = LeaseDurations(
        duration=timedelta(hours=2), renew_deadline=timedelta(hours=1), retry=FAST.retry
    )
    one = election(api, changes, patient)
    server.answers.extend([reply(lease("me")), reply(lease("me", 2))])
    server.answers.extend([reply(lease("other", version)) for version in range(3, 1000)])

    one.start()
    until(lambda: len(changes) == 2)
    assert not one.leading
    one.stop()


# Processes, on the real API server

REPLICA = """
import json, sys, time
from datetime import timedelta
from pathlib import Path
from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.leases import LeaderElection, LeaseDurations

url, ca_file, token, identity, log = sys.argv[1:]
server = Server(url=url, ca_file=Path(ca_file), token=lambda: token)
durations = LeaseDurations(
    duration=timedelta(seconds=3), renew_deadline=timedelta(seconds=2), retry=timedelta(seconds=0.2)
)
election = LeaderElection(
    Api(server, user_agent="t", field_manager="t", timeout=timedelta(seconds=1)),
    namespace="default", name="race", identity=identity, changed=lambda: None, durations=durations,
    yields=Path(f"{log}.cordoned").exists,
)
election.start()
with open(log, "a", buffering=1) as file:
    while True:
        if election.leading:  # seized by a pause here, the write comes late: the line tells when
            file.write(f"{time.monotonic()} {identity}\\n")
        time.sleep(0.002)
"""


class Replicas:
    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self._plane = plane
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, identity: str) -> None:
        plane = self._plane
        arguments = [plane.url, plane.certificate, plane.token, identity, self._log(identity)]
        self._processes[identity] = subprocess.Popen(
            [sys.executable, "-c", REPLICA, *map(str, arguments)]
        )

    def send(self, identity: str, number: signal.Signals) -> None:
        os.kill(self._processes[identity].pid, number)

    def cordon(self, identity: str, *, is_cordoned: bool = True) -> None:
        """Its node is about to be drained, or is back."""
        mark = Path(f"{self._log(identity)}.cordoned")
        mark.touch() if is_cordoned else mark.unlink()

    def acts(self, identity: str) -> list[float]:
        """When it did what only a leader does."""
        log = self._log(identity)
        lines = log.read_text().splitlines()[:-1] if log.exists() else []
        return [float(line.split()[0]) for line in lines]

    def end(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def _log(self, identity: str) -> Path:
        return self._folder / identity


@pytest.fixture
def replicas(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(control_plane, tmp_path)
    yield replicas
    replicas.end()
    control_plane.request("DELETE", f"{LEASES}/race")


def test_a_killed_leader_is_followed(replicas: Replicas) -> None:
    replicas.start("a")
    until(lambda: len(replicas.acts("a")) > 10)
    replicas.start("b")
    time.sleep(0.5)
    assert replicas.acts("b") == []

    replicas.send("a", signal.SIGKILL)

    until(lambda: len(replicas.acts("b")) > 10)
    # b cannot tell when a died; a's last renewal was at most a retry before its last act
    assert replicas.acts("b")[0] - replicas.acts("a")[-1] > 3 - 1


def test_a_suspended_leader_does_nothing_after_another_has_begun(replicas: Replicas) -> None:
    replicas.start("a")
    until(lambda: len(replicas.acts("a")) > 10)
    replicas.start("b")

    replicas.send("a", signal.SIGSTOP)
    until(lambda: len(replicas.acts("b")) > 10)
    stopped = len(replicas.acts("a"))
    replicas.send("a", signal.SIGCONT)
    seen = len(replicas.acts("b"))
    until(lambda: len(replicas.acts("b")) > seen + 200)

    assert len(replicas.acts("a")) <= stopped + 1
    replicas.send("b", signal.SIGKILL)
    until(lambda: len(replicas.acts("a")) > stopped + 10)


def test_a_leader_whose_node_is_drained_hands_over(replicas: Replicas) -> None:
    replicas.start("a")
    until(lambda: len(replicas.acts("a")) > 10)
    replicas.start("b")

    replicas.cordon("a")
    until(lambda: len(replicas.acts("b")) > 10)
    assert replicas.acts("a")[-1] + 0.2 < replicas.acts("b")[0]  # the last call had a retry to end

    stopped = len(replicas.acts("a"))
    replicas.cordon("a", is_cordoned=False)
    seen = len(replicas.acts("b"))
    until(lambda: len(replicas.acts("b")) > seen + 200)
    assert len(replicas.acts("a")) == stopped  # a node that is back takes nothing back


def test_a_leader_whose_node_is_drained_goes_on_if_no_other_does(replicas: Replicas) -> None:
    replicas.start("a")
    until(lambda: len(replicas.acts("a")) > 10)
    replicas.cordon("a")
    until(lambda: time.monotonic() - replicas.acts("a")[-1] > 1)  # it has left the lease
    left = len(replicas.acts("a"))

    until(lambda: len(replicas.acts("a")) > left + 200)
    replicas.start("b")
    replicas.cordon("b")
    replicas.send("a", signal.SIGKILL)

    until(lambda: len(replicas.acts("b")) > 10)


def test_a_leader_whose_node_is_back_before_it_has_left_leads_on(
    server: ScriptedServer, api: Api
) -> None:
    cordoned: list[bool] = []
    one = LeaderElection(
        api, namespace="default", name="l", identity="me", changed=lambda: None, durations=FAST,
        yields=lambda: bool(cordoned),
    )  # fmt: skip
    server.answers.extend([reply(lease("me", version)) for version in range(2000)])
    one.start()
    until(lambda: one.leading)

    cordoned.append(True)
    assert not one.leading  # at once, whatever the thread does
    cordoned.clear()
    assert one.leading
    one.stop()


def test_a_leader_without_the_api_server_stops_and_goes_on_after(
    replicas: Replicas, control_plane: ControlPlane
) -> None:
    replicas.start("a")
    until(lambda: len(replicas.acts("a")) > 10)

    control_plane.stop_api_server()
    stopped_at = time.monotonic()
    until(lambda: time.monotonic() - max(replicas.acts("a")[-1], stopped_at) > 0.5)
    last = replicas.acts("a")[-1]
    control_plane.start_api_server()

    assert last - stopped_at < 2.3  # the renew deadline, and what a busy machine takes
    until(lambda: replicas.acts("a")[-1] > last)
    held = control_plane.request("GET", f"{LEASES}/race")["spec"]
    assert held["holderIdentity"] == "a"
    assert json.dumps(held["leaseDurationSeconds"]) == "3"
