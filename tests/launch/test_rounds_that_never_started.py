"""Orders to end a round that a launcher was never ordered to start."""

from collections.abc import Iterator

import pytest

from holdfast.apps.launch.coordinator import Coordinator
from holdfast.apps.launch.node_ranks import NodeRanks
from holdfast.apps.launch.options import parse
from holdfast.apps.launch.rank_output import RankOutput
from holdfast.apps.launch.stderr_relay import StderrRelay
from holdfast.decisions.launch_events import Joined, Lost, Member, Reported, Stopped, StopRequested
from holdfast.decisions.launch_orders import Order, OrderKind
from holdfast.decisions.launch_state import Outcome, Phase, RoundSettings


class Launchers:
    """Launchers of a job that have started nothing yet, and their reports."""

    def __init__(self, relay: StderrRelay) -> None:
        options = parse(["--no-python", "true"], {})
        self.reports: list[Reported] = []
        self.nodes = {}
        for name in ("a", "b"):
            member = Member(name=name, address="127.0.0.1", port=1, slots=1)
            output = RankOutput(options.logs, options.run_id, options.role, relay)
            self.nodes[name] = NodeRanks(member, options, {}, self.reports.append, output)

    def joined(self, name: str) -> Joined:
        return Joined(member=self.nodes[name].member)


@pytest.fixture
def launchers() -> Iterator[Launchers]:
    with StderrRelay() as relay:
        found = Launchers(relay)
        yield found
        for node in found.nodes.values():
            node.close(keeps_evidence=False)


def test_a_round_that_never_started_is_confirmed_as_stopped_once(launchers: Launchers) -> None:
    order = Order(kind=OrderKind.STOP, round=3)
    for _ in range(2):
        launchers.nodes["a"].apply_order(order)
    launchers.nodes["b"].apply_order(Order(kind=OrderKind.END, round=3))

    (report,) = launchers.reports
    assert isinstance(report, Stopped)
    assert (report.launcher, report.round) == ("a", 3)


@pytest.mark.parametrize("is_lost", [True, False], ids=["node is lost", "job is to stop"])
def test_a_job_continues_after_a_round_that_ended_as_it_began(
    launchers: Launchers, is_lost: bool
) -> None:
    """A coordinator that was paused reads many messages before it sends the next orders."""
    coordinator = Coordinator(RoundSettings(nodes=2))
    coordinator.handle(launchers.joined("a"))
    coordinator.handle(launchers.joined("b"))
    assert coordinator.job.phase is Phase.RUN
    coordinator.handle(Lost(launcher="b") if is_lost else StopRequested(signal=15))

    for name, order in coordinator.orders_for(["a"] if is_lost else ["a", "b"]).items():
        launchers.nodes[name].apply_order(order)
    for report in launchers.reports:
        coordinator.handle(report)
    if is_lost:
        assert coordinator.job.alive == {"b"}  # until its fence
    else:
        assert coordinator.job.outcome is Outcome.INTERRUPTED
