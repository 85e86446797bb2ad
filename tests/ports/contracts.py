"""What every adapter of a port must do: test classes to inherit from, with a ``harness`` fixture.

Fakes and adapters pass the same tests. The contract of providers is in ``holdfast.testing``::

    class TestMyCluster(ClusterContract):
        @pytest.fixture
        def harness(self): ...
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Final, Protocol

from holdfast.model.actions import CloseBreaker, TripBreaker
from holdfast.model.health import Urgency
from holdfast.model.incidents import Incident
from holdfast.model.job_views import JobView
from holdfast.model.jobs import JobPhase, JobRecord
from holdfast.model.nodes import NodeView, Phase
from holdfast.model.requests import Request, Verb
from holdfast.ports.cluster import ClusterBackend
from holdfast.ports.incidents import IncidentStore
from holdfast.ports.jobs import JobBackend
from tests.ports.builders import NOW, a_fault, a_past_fault, a_record, a_remediation
from tests.ports.event_laws import ReportedOnce

HOUR: Final = timedelta(hours=1)


class ClusterHarness(Protocol):
    """A cluster of one node that has booted."""

    cluster: ClusterBackend
    node: str

    def put_request(self, request: Request) -> None:
        """Record a person's request for the node."""
        ...


class DurableHarness(ClusterHarness, Protocol):
    """A cluster whose state outlives the process that uses it."""

    def reopened(self) -> ClusterBackend:
        """Return the same cluster, as the next controller finds it."""
        ...


class JobHarness(Protocol):
    """A cluster of two nodes that have booted, and a job for both that waits to be launched.

    Its ranks run until they are terminated, and handle SIGTERM.
    """

    jobs: JobBackend
    job: str
    nodes: tuple[str, ...]

    def settle(self, is_done: Callable[[], bool]) -> None:
        """Wait until ``is_done``; fail if that takes unreasonably long."""
        ...


def view(cluster: ClusterBackend, node: str) -> NodeView:
    """Return the node of that name."""
    return next(one for one in cluster.snapshot().nodes if one.name == node)


class ClusterContract(ReportedOnce):
    """Contract of ``ClusterBackend``."""

    def test_a_record_is_read_as_it_was_stored(self, harness: ClusterHarness) -> None:
        record = replace(view(harness.cluster, harness.node).record, phase=Phase.CHECKING)

        harness.cluster.put(harness.node, record)
        harness.cluster.put(harness.node, record)

        assert view(harness.cluster, harness.node).record == record

    def test_clearing_a_request_leaves_a_later_one(self, harness: ClusterHarness) -> None:
        later = Request(id="later", verb=Verb.REPLACE, requested_at=NOW)
        harness.put_request(later)

        harness.cluster.clear_request(harness.node, "earlier")
        assert view(harness.cluster, harness.node).request == later

        harness.cluster.clear_request(harness.node, "later")
        assert view(harness.cluster, harness.node).request is None

    def test_clearing_a_request_of_an_unknown_node_does_nothing(
        self, harness: ClusterHarness
    ) -> None:
        harness.cluster.clear_request("no-such-node", "r")

    def test_a_check_that_is_requested_is_seen_as_a_request_where_there_are_checks(
        self, harness: ClusterHarness
    ) -> None:
        request = Request(
            id="suspect", verb=Verb.DEEP_CHECK, requested_at=NOW, why="jobs died here"
        )

        can_check = harness.cluster.request_check(harness.node, request)
        harness.cluster.request_check(harness.node, request)

        assert view(harness.cluster, harness.node).request == (request if can_check else None)

    def test_a_check_that_is_requested_takes_no_place_of_another_request(
        self, harness: ClusterHarness
    ) -> None:
        of_a_person = Request(id="r", verb=Verb.REBOOT, requested_at=NOW)
        harness.put_request(of_a_person)

        request = Request(id="suspect", verb=Verb.DEEP_CHECK, requested_at=NOW)
        harness.cluster.request_check(harness.node, request)

        assert view(harness.cluster, harness.node).request == of_a_person

    def test_an_open_breaker_stays_as_it_is(self, harness: ClusterHarness) -> None:
        harness.cluster.trip_breaker(TripBreaker(reason="first", nodes=()))
        harness.cluster.trip_breaker(TripBreaker(reason="second", nodes=()))

        breaker = harness.cluster.snapshot().breaker
        assert (breaker.reason, breaker.tripped_at is None) == ("first", False)

    def test_only_the_breaker_that_is_meant_is_closed(self, harness: ClusterHarness) -> None:
        harness.cluster.trip_breaker(TripBreaker(reason="a storm", nodes=()))
        tripped_at = harness.cluster.snapshot().breaker.tripped_at
        assert tripped_at is not None
        after = ((tripped_at - HOUR, tripped_at), (tripped_at, None))
        for meant, left in (*after, after[-1]):
            harness.cluster.close_breaker(CloseBreaker(tripped_at=meant, reason="quiet"))
            assert harness.cluster.snapshot().breaker.tripped_at == left
        assert harness.cluster.snapshot().breaker.reset_at is not None

    def test_offenders_are_remembered(self, harness: ClusterHarness) -> None:
        harness.cluster.remember_offender("i-1")
        harness.cluster.remember_offender("i-1")

        assert harness.cluster.snapshot().offenders == {"i-1"}

    def test_a_retired_node_is_forgotten(self, harness: ClusterHarness) -> None:
        harness.cluster.retire(harness.node)
        harness.cluster.retire(harness.node)

        assert harness.cluster.snapshot().nodes == ()


class DurableClusterContract:
    """State that a ``ClusterBackend`` must keep after its controller has died."""

    def test_the_next_controller_finds_what_was_stored(self, harness: DurableHarness) -> None:
        fault = a_fault()
        remediation = a_remediation(opened_at=fault.since, ordered_at=NOW, retry_at=NOW, repairs=3)
        record = a_record(
            Phase.REBOOTING, remediation=remediation, history=(a_past_fault(ago=HOUR),)
        )
        request = Request(id="r", verb=Verb.REBOOT, requested_at=NOW, urgency=Urgency.DEFERRED)
        harness.put_request(request)
        harness.cluster.put(harness.node, record)
        harness.cluster.trip_breaker(TripBreaker(reason="a storm", nodes=()))
        harness.cluster.remember_offender("i-1")

        found = harness.reopened()

        node = view(found, harness.node)
        assert (node.record, node.request) == (record, request)
        assert found.snapshot().breaker == harness.cluster.snapshot().breaker
        assert found.snapshot().breaker.reason == "a storm"
        assert found.snapshot().offenders == {"i-1"}


class JobContract:
    """Contract of ``JobBackend``."""

    def test_a_record_is_read_as_it_was_stored(self, harness: JobHarness) -> None:
        record = self._started(harness, launch=False)

        assert _job(harness).record == record

    def test_nothing_runs_before_it_is_launched(self, harness: JobHarness) -> None:
        self._started(harness, launch=False)

        assert _job(harness).ranks == ()

    def test_a_launch_starts_every_rank_on_its_node(self, harness: JobHarness) -> None:
        self._started(harness, launch=True)

        ranks = _job(harness).ranks
        assert [(one.rank, one.node) for one in ranks] == [*enumerate(harness.nodes)]
        assert [one.exit_code for one in ranks] == [None, None]

    def test_a_stop_ends_every_rank_by_sigterm(self, harness: JobHarness) -> None:
        self._started(harness, launch=True)

        harness.jobs.stop(harness.job)
        harness.jobs.stop(harness.job)

        harness.settle(lambda: _codes(harness) == [-15, -15])

    def test_a_kill_ends_every_rank_by_sigkill(self, harness: JobHarness) -> None:
        self._started(harness, launch=True)

        harness.jobs.kill(harness.job)
        harness.jobs.kill(harness.job)

        harness.settle(lambda: _codes(harness) == [-9, -9])

    def test_what_has_ended_is_not_launched_again_nor_ended_twice(
        self, harness: JobHarness
    ) -> None:
        self._started(harness, launch=True)
        harness.jobs.kill(harness.job)
        harness.settle(lambda: _codes(harness) == [-9, -9])
        ended = _job(harness).ranks

        harness.jobs.launch(harness.job)
        harness.jobs.stop(harness.job)

        assert _job(harness).ranks == ended

    def test_what_was_never_launched_can_be_stopped(self, harness: JobHarness) -> None:
        self._started(harness, launch=False)

        harness.jobs.stop(harness.job)
        harness.jobs.kill(harness.job)

        assert _job(harness).ranks == ()

    def test_the_next_attempt_begins_without_ranks_and_gets_its_own(
        self, harness: JobHarness
    ) -> None:
        record = self._started(harness, launch=True)
        harness.jobs.kill(harness.job)
        harness.settle(lambda: _codes(harness) == [-9, -9])

        harness.jobs.put(harness.job, replace(record, attempt=2))
        assert _job(harness).ranks == ()

        harness.jobs.launch(harness.job)
        assert _codes(harness) == [None, None]

    def test_a_job_without_checkpoints_has_none_that_was_moved(self, harness: JobHarness) -> None:
        self._started(harness, launch=True)

        harness.jobs.jobs()

        assert not any(harness.jobs.moved_checkpoints().values())

    def test_a_job_that_has_ended_is_listed_no_more(self, harness: JobHarness) -> None:
        record = self._started(harness, launch=False)

        harness.jobs.put(harness.job, replace(record, phase=JobPhase.CANCELLED))

        assert harness.jobs.jobs() == ()

    def _started(self, harness: JobHarness, *, launch: bool) -> JobRecord:
        record = JobRecord(
            phase=JobPhase.STARTING,
            phase_since=NOW,
            attempt=1,
            placement=harness.nodes,
            started_at=NOW,
        )
        harness.jobs.put(harness.job, record)
        if launch:
            harness.jobs.launch(harness.job)
        return record


def _job(harness: JobHarness) -> JobView:
    return next(one for one in harness.jobs.jobs() if one.spec.name == harness.job)


def _codes(harness: JobHarness) -> list[int | None]:
    return [one.exit_code for one in _job(harness).ranks]


class IncidentContract:
    """Contract of ``IncidentStore``; here the ``harness`` is the store itself."""

    def test_an_incident_is_read_as_it_was_stored_last(self, harness: IncidentStore) -> None:
        first = _incident("b")
        last = replace(first, released_at=NOW, successor="other")

        harness.put(first)
        harness.put(last)

        assert harness.get("b") == last
        assert harness.get("a") is None
        assert harness.list_incidents() == (last,)

    def test_incidents_are_listed_in_the_order_in_which_they_came(
        self, harness: IncidentStore
    ) -> None:
        for minute, name in enumerate(("b", "a", "c")):
            at = NOW + timedelta(minutes=minute)
            harness.put(replace(_incident(name), detected_at=at, quarantined_at=at))
        harness.put(replace(_incident("b"), released_at=NOW))

        assert [one.id for one in harness.list_incidents()] == ["b", "a", "c"]

    def test_a_deleted_incident_is_gone_and_the_others_stay(self, harness: IncidentStore) -> None:
        harness.put(_incident("a"))
        harness.put(_incident("b"))

        harness.delete("a")
        harness.delete("a")

        assert harness.get("a") is None
        assert harness.list_incidents() == (_incident("b"),)


def _incident(name: str) -> Incident:
    return Incident(
        id=name,
        node="node",
        provider_id="i-1",
        reason="reason",
        remedy="reboot",
        detected_at=NOW,
        quarantined_at=NOW,
    )
