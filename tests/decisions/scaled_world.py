"""A cluster that scales itself, the owner of its machines, and a scheduler, all in memory."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from holdfast.decisions.autoscaling import shapes
from holdfast.decisions.cluster_members import ObservedCluster
from holdfast.decisions.cluster_policy import ClusterPolicy
from holdfast.decisions.clusters import decide
from holdfast.decisions.pod_packing import holds
from holdfast.model.cluster_actions import Configure, Ensure, Remove, Scale
from holdfast.model.clusters import (
    AutoScaling,
    DesiredCluster,
    DesiredGroup,
    GroupStage,
    MachineGroup,
    MachineState,
    NodeHealth,
)
from holdfast.model.names import SCALE_DOWN
from holdfast.model.node_settings import KubernetesConfig, Taint
from holdfast.model.pod_demand import NodeLoad, NodeShape, PodDemand, WaitingPod
from holdfast.model.sagemaker import ClusterStatus, InstanceStatus
from tests.ports.fake_machine_groups import FakeMachineGroups
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = ClusterPolicy()
GPU = "nvidia.com/gpu"
GPUS = 8
ROUND = timedelta(seconds=30)


def a_cluster(bounds: Mapping[str, tuple[int, int]], **more) -> DesiredCluster:
    """A cluster in service whose groups have their minimum size."""
    groups = tuple(
        DesiredGroup(
            made_of=MachineGroup(cluster="lab", name=name),
            **{"target": least, "minimum": least, "most": most, "stage": GroupStage.MADE, **more},
        )
        for name, (least, most) in bounds.items()
    )
    return DesiredCluster(
        name="lab",
        uid="0123456789ab",
        created_at=NOW,
        since=NOW,
        status=ClusterStatus.IN_SERVICE,
        groups=groups,
        is_continuous=True,
        autoscaling=AutoScaling(is_enabled=True),
    )


class ScaledWorld:
    """Rounds of a loop; between two of them, pods are placed and machines boot.

    ``pods`` are the GPUs of each pod by its name, ``placed`` the machine of each that runs.
    """

    def __init__(self, bounds: Mapping[str, tuple[int, int]]) -> None:
        self.clock = FakeClock(NOW)
        self.owner = FakeMachineGroups(self.clock)
        self.cluster = a_cluster(bounds, stage=GroupStage.NEW)
        self.members = ()
        self.pods: dict[str, int] = {}
        self.placed: dict[str, str] = {}
        self.taints: dict[str, tuple[Taint, ...]] = {}
        self.broken: set[str] = set()
        self.sizes: list[dict[str, int]] = []
        self.idle_at: dict[str, datetime] = {}
        self.removed: list[str] = []
        self.events: list[str] = []

    def nodes(self) -> dict[str, NodeLoad]:
        shape = NodeShape(resources={GPU: GPUS})
        return {
            one.id: NodeLoad(
                shape=shape,
                is_open=True,
                pods=tuple(name for name, there in self.placed.items() if there == one.id),
            )
            for members in self.owner.members.values()
            for one in members
            if one.state is MachineState.RUNNING
        }

    def seen(self) -> ObservedCluster:
        nodes = self.nodes()
        idle = {key for key, one in nodes.items() if not one.pods}
        fits = frozenset({*idle, *shapes(self.cluster)})
        return ObservedCluster(
            machines={
                one.name: self.owner.machines(one.made_of.key) for one in self.cluster.groups
            },
            health={
                one: NodeHealth(status=InstanceStatus.RUNNING, in_repair=one in self.broken)
                for one in nodes
            },
            settings={one: KubernetesConfig(taints=self.taints.get(one, ())) for one in nodes},
            demand=PodDemand(
                nodes=nodes,
                waiting=tuple(
                    WaitingPod(name=name, resources={GPU: gpus}, fits=fits)
                    for name, gpus in self.pods.items()
                    if name not in self.placed
                ),
            ),
        )

    def schedule(self) -> None:
        """Place every pod for which there is room."""
        for name, gpus in self.pods.items():
            if name in self.placed:
                continue
            for key, one in self.nodes().items():
                used = sum(self.pods[other] for other in one.pods)
                pod = WaitingPod(name=name, resources={GPU: gpus + used}, fits=frozenset())
                is_shut = any(taint.key == SCALE_DOWN for taint in self.taints.get(key, ()))
                if not is_shut and key not in self.broken and holds(one.shape.resources, pod):
                    self.placed[name] = key
                    break

    def end(self, name: str) -> None:
        self.pods.pop(name, None)
        self.placed.pop(name, None)

    def step(self) -> None:
        seen, now = self.seen(), self.clock.now()
        for key, node in seen.demand.nodes.items():
            if node.pods or key in self.broken:
                self.idle_at.pop(key, None)
            else:
                self.idle_at.setdefault(key, now)
        step = decide(self.cluster, self.members, seen, POLICY, now)
        assert step == decide(self.cluster, self.members, seen, POLICY, now)
        self.cluster, self.members = step.cluster, step.members
        self.events += [one.description for one in step.cluster_events]
        self.sizes.append({one.name: one.target for one in self.cluster.groups})
        for action in step.actions:
            self._act(action, now)
        self._judge()

    def _act(self, action, now) -> None:
        match action:
            case Ensure(group):
                self.owner.ensure(group)
                self.cluster = replace(
                    self.cluster,
                    groups=tuple(replace(one, stage=GroupStage.MADE) for one in self.cluster.groups)
                )  # fmt: skip
            case Scale(key, count):
                self.owner.scale(key, count)
            case Remove(key, ids):
                for one in ids:
                    assert one not in self.placed.values(), f"{one} has pods"
                    assert one not in self.broken, f"{one} is under repair"
                    assert now - self.idle_at[one] >= POLICY.scale_down_after
                self.removed += ids
                self.owner.remove(key, ids)
            case Configure(_, changes):
                for one in changes:
                    named = {(t.key, t.effect) for t in (*one.taints, *one.removed_taints)}
                    others = [
                        t
                        for t in self.taints.get(one.machine, ())
                        if (t.key, t.effect) not in named
                    ]
                    self.taints[one.machine] = (*others, *one.taints)

    def _judge(self) -> None:
        for group in self.cluster.groups:
            assert group.minimum <= group.target <= group.most
            there = self.owner.members.get(group.made_of.key, ())
            staying = [one for one in there if one.state is not MachineState.LEAVING]
            assert len(staying) <= group.most

    def pass_time(self, span: timedelta, *, boots: bool = True) -> None:
        end = self.clock.time + span
        while self.clock.time < end:
            self.schedule()
            self.step()
            self.schedule()  # a pod may come between a decision and the next look
            if boots:
                self.owner.settle()
            self.clock.time += ROUND

    def running(self, name: str = "gpu") -> int:
        return len(self.owner.members.get(f"lab/{name}", ()))
