"""An API that creates clusters, and whoever brings them about, with machines in memory."""

import contextlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from api_calls import ADA, BOB, PLACE, Api

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.policies import DatabasePolicies
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.api.audit import AuditTrail
from holdfast.api.call import ClusterCreation
from holdfast.api.created import CreatedCluster
from holdfast.api.identity import AccessKey, Keyring
from holdfast.api.protocol import Protocol
from holdfast.api.script_sources import limited_to
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.engine.cluster_reconciler import ClusterPorts, ClusterReconciler, PollIntervals
from holdfast.engine.policy_reconciler import PolicyPorts, PolicyReconciler
from holdfast.model.clusters import MachineState, NodeHealth
from holdfast.model.incidents import Incident
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus
from holdfast.model.team_queues import CPU, MEMORY, NodeType
from tests.ports.fake_kubernetes_nodes import FakeKubernetesNodes
from tests.ports.fake_machine_groups import FakeMachineGroups
from tests.ports.fake_pod_scheduling import FakePodScheduling
from tests.ports.fake_team_queues import FakeTeamQueues

AT_ONCE = PollIntervals(busy=timedelta(0), quiet=timedelta(0))
TYPES = {
    "ml.p5.48xlarge": NodeType(
        label="p5.48xlarge",
        nodes=4,
        resources={CPU: 192_000, MEMORY: 1 << 41, "nvidia.com/gpu": 8},
    )
}
ROLE = "arn:aws:iam::123456789012:role/nodes"


def group(name: str = "gpu", count: int = 2, **more: Any) -> dict[str, Any]:
    return {
        "InstanceGroupName": name,
        "InstanceCount": count,
        "InstanceType": "ml.g5.xlarge",
        "ExecutionRole": ROLE,
        **more,
    }


class LateClock:
    """The time, and more."""

    def __init__(self) -> None:
        self.late = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.late


@dataclass
class FakeNodes:
    """Controllers of nodes: ``ClusterNodes``, and a ``CreatedClusterNodes``, in memory."""

    groups: FakeMachineGroups
    looked_after: bool = False
    sick: dict[str, NodeHealth] = field(default_factory=dict)
    renewed: list[str] = field(default_factory=list)
    requested: list[tuple[str, Verb]] = field(default_factory=list)
    past: list[Incident] = field(default_factory=list)
    meanwhile: Callable[[], object] = lambda: None

    def health(self, cluster):
        self.meanwhile()
        if not self.looked_after:
            return {}
        running = {
            one.id: NodeHealth(status=InstanceStatus.RUNNING)
            for key, members in self.groups.members.items()
            for one in members
            if key.startswith(f"{cluster}/") and one.state is MachineState.RUNNING
        }
        return {**running, **self.sick}

    def renew(self, cluster, machines):
        self.renewed += machines
        if not self.looked_after:
            return frozenset()
        for key, members in self.groups.members.items():  # other machines come, the old ones go
            for number, one in enumerate(members):
                if one.id in machines and one.state is not MachineState.LEAVING:
                    members[number] = replace(one, state=MachineState.LEAVING)
                    self.groups.scale(key, self._target(key) + 1)
        return frozenset(machines)

    def _target(self, key):
        return sum(one.state is not MachineState.LEAVING for one in self.groups.members[key])

    def incidents(self, cluster):
        return tuple(self.past)

    def submit(self, cluster, machine, verb, person, checks=()):
        self.requested.append((machine, verb))
        return ""


@dataclass
class FakeAlarms:
    on: set[str] = field(default_factory=set)

    def active_alarms(self, names):
        return frozenset(self.on.intersection(names))


@dataclass
class FakeImages:
    """A ``MachineImages``: all groups have the same."""

    newest: str = "ami-00000001"
    trouble: Exception | None = None

    def newest_image(self, _group):
        if self.trouble is not None:
            raise self.trouble
        return self.newest


class Lab(Api):
    """An ``Api`` whose clusters come about when ``settle`` is called."""

    def __init__(
        self,
        url: str,
        *,
        limit: int = 100,
        keys: tuple[AccessKey, ...] = (ADA, BOB),
        sources: tuple[str, ...] | None = None,
    ) -> None:
        super().__init__(keys=keys)
        self.sources = sources
        self.late = LateClock()
        self.database = Database(url, self.late)
        weakref.finalize(self, self.database.close)
        self.records = DatabaseRecords(self.database)
        self.groups = FakeMachineGroups(self.late)
        self.nodes = FakeNodes(self.groups)
        self.alarms = FakeAlarms()
        self.kubernetes = FakeKubernetesNodes()
        self.images = FakeImages()
        self.pods: FakePodScheduling | None = FakePodScheduling()
        self.policies: DatabasePolicies | None = DatabasePolicies(self.database)
        self.queues = FakeTeamQueues(types=dict(TYPES))
        self.rejections: list[str] = []
        self.reported: list[str] = []
        self.limit = limit
        self.mirror_problem = ""
        self.has_alarms = True
        self.nonce = 0
        self.restart()
        self.meanwhile: Callable[[], object] = lambda: None
        self.protocol = self.served()

    def served(self) -> Protocol:
        """A server with the limit that holds now."""
        return Protocol(
            Keyring(self.keys),
            PLACE,
            self._opened,
            self.clock,
            AuditTrail(self.audit, self.clock),
            self._maker(),
        )

    def call(self, operation, key=ADA, **request):
        """A signature changes something once, so each request is another."""
        self.nonce += 1
        return super().call(operation, key, **request, Nonce=self.nonce)

    def restart(self, pace: PollIntervals = AT_ONCE) -> None:
        """Whoever brings clusters about is killed, and begins anew."""
        ports = ClusterPorts(
            records=self.records,
            groups=self.groups,
            nodes=self.nodes,
            alarms=self.alarms,
            clock=self.late,
            report=self.reported.append,
            kubernetes=self.kubernetes,
            pods=self.pods,
            images=self.images,
        )
        self.reconciler = ClusterReconciler(ports, ClusterPolicy(), pace)
        self.policy_reconciler = PolicyReconciler(
            PolicyPorts(
                records=DatabasePolicies(self.database),
                queues=self.queues,
                clock=self.late,
                report=self.reported.append,
            )
        )

    def settle(self, *, rounds: int = 12) -> None:
        """So many rounds, or fewer if nothing happens any more."""
        before = None
        for _ in range(rounds):
            self.reconciler.step()
            self.groups.settle()
            held = [self.records.load(name) for name in self.records.names()]
            now = (held, {key: tuple(members) for key, members in self.groups.members.items()})
            if now == before:
                return
            before = now

    def status(self, name: str = "lab") -> str:
        return self.call("DescribeCluster", ClusterName=name)["ClusterStatus"]

    def listed(self, name: str = "lab") -> list[dict[str, Any]]:
        nodes = self.call("ListClusterNodes", ClusterName=name, IncludeNodeLogicalIds=True)
        return nodes["ClusterNodeSummaries"]

    def ids(self, group: str = "gpu") -> set[str]:
        """Instances of a group."""
        return {
            one["InstanceId"]
            for one in self.listed()
            if one["InstanceGroupName"] == group and one["InstanceId"]
        }

    def statuses(self) -> list[str]:
        return sorted(one["InstanceStatus"]["Status"] for one in self.listed())

    def described(self) -> dict[str, Any]:
        return self.call("DescribeCluster", ClusterName="lab")

    def described_groups(self) -> dict[str, dict[str, Any]]:
        return {one["InstanceGroupName"]: one for one in self.described()["InstanceGroups"]}

    def events(self, name: str = "lab") -> list[str]:
        """Descriptions, oldest first."""
        found = self.call("ListClusterEvents", ClusterName=name, SortOrder="Ascending")
        return [one["Description"] for one in found["Events"]]

    def create(self, *groups: dict[str, Any], name: str = "lab", **more: Any) -> None:
        wanted = list(groups) or [group()]
        made = self.call("CreateCluster", ClusterName=name, InstanceGroups=wanted, **more)
        assert made["ClusterArn"] == self.arn(name)

    def arn(self, name: str = "lab") -> str:
        return self.call("DescribeCluster", ClusterName=name)["ClusterArn"]

    @contextlib.contextmanager
    def _opened(self):
        made = [CreatedCluster(one, self.records, self.nodes) for one in self.records.all()]
        self.meanwhile()
        yield [*made, *self.clusters]

    def _maker(self) -> ClusterCreation:
        return ClusterCreation(
            records=self.records,
            rejections=limited_to(self.sources, lambda _: self.rejections),
            wake=self.reconciler.wake,
            node_limit=self.limit,
            has_alarms=self.has_alarms,
            mirror_problem=self.mirror_problem,
            policies=self.policies,
        )
