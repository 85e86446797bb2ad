"""Jobs of several kinds that meet one fault, and train the weights of jobs that meet none."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count

from leaders import until_led
from operator_jobs import OperatorJob
from phases import Phases
from site_of_nodes import Site
from training_job import finish

from tests.engines.real_node import RealNode

_numbers = count(1)
"""Of the names of jobs: no two tests share a folder."""


@dataclass
class Jobs:
    """A job of each kind, with a rank of each on one node."""

    site: Site
    undisturbed: Mapping[str, str]
    made: list[OperatorJob]
    victim: str

    def begin(self, phases: Phases) -> None:
        """All train; the fault happens now."""
        for job in self.made:
            job.until_training(1, steps=5)
            assert self.victim in job.places.values()
        phases.begin()

    def lose_a_node(self, phases: Phases, fault: str, breaks: Callable[[RealNode], object]) -> None:
        """A node breaks under a rank of each; all train on, and another machine takes its place."""
        self.begin(phases)
        breaks(self.site.cluster.nodes[self.victim])
        self.until_replaced(phases)
        self.finish(phases, fault)

    def lose_a_rank(
        self, phases: Phases, fault: str, breaks: Callable[[OperatorJob], object]
    ) -> None:
        """A rank of each ends; all train on, and no node is repaired."""
        self.begin(phases)
        for job in self.made:
            breaks(job)
        self.until_resumed(phases)
        assert phases.orders == []
        self.finish(phases, fault)

    def until_resumed(self, phases: Phases) -> None:
        """All ranks train in their second attempt, from the last step that rank 0 has saved."""

        def are_resumed() -> bool:
            return all(len(job.steps(2)) == job.ranks for job in self.made)

        phases.reach("resumed", are_resumed)
        for job in self.made:
            [loaded] = job.loaded(2)
            assert loaded >= job.steps(1)[0], f"{job.kind} lost steps"

    def until_replaced(self, phases: Phases) -> None:
        """Another machine has taken the place of the node."""
        phases.reach("ordered", lambda: phases.orders)
        self.until_resumed(phases)
        nodes = self.site.cluster.nodes
        phases.reach(
            "joined", lambda: self.victim not in nodes and len(self.site.in_service()) == 4
        )
        assert phases.orders == [("replace", self.victim)]

    def finish(self, phases: Phases, fault: str) -> None:
        """Each ends with the weights of a run that nothing disturbed."""
        for job in self.made:
            phases.record(fault, job)
        finish(*self.made)
        for job in self.made:
            [(step, digest)] = job.digests.items()
            assert digest == self.undisturbed[step], job.kind


@contextmanager
def submitted(
    site: Site, digests: Mapping[str, str], kinds: Sequence[type[OperatorJob]]
) -> Iterator[Jobs]:
    """Jobs that begin to train; the leader of Holdfast runs elsewhere."""
    victim = min(set(site.in_service()) - {until_led(site)["node"]})
    number = next(_numbers)
    made = [kind(site, f"{kind.kind.lower()}-{number}", ranks=2) for kind in kinds]
    for job in made:
        job.submit(near=victim)
    yield Jobs(site, digests, made, victim)
    for job in made:
        job.delete()
