"""The deep health check of the node that this process runs on."""

import os
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, Protocol

from holdfast.adapters.host.accelerators import instance_type
from holdfast.adapters.host.deep_checks.contract import STRESS_TIME, ReplayPlan, Skip, Target, Work
from holdfast.adapters.host.deep_checks.run import make_part
from holdfast.adapters.host.deep_checks.table import ROWS
from holdfast.adapters.host.machine import Machine
from holdfast.apps.agent.equipment import equipment_for
from holdfast.apps.checks.config import CheckConfig
from holdfast.detectors.thresholds import thresholds_of
from holdfast.model.node_checks import Level, NodeCheck, PartResult
from holdfast.ports.clock import Clock

_PLACES_OF_AWS: Final = "/opt/aws/neuron/bin:/opt/amazon/efa/bin"


_KINDS: Final = {row.name: row.kind for row in ROWS}


class Watcher(Protocol):
    """Gets the progress of a check."""

    def begun(self, name: str, plan: Work, left: timedelta) -> None:
        """Called when a part begins; it and all later parts take about ``left``."""
        ...

    def ended(self, result: PartResult) -> None:
        """Called when a part has ended, or was skipped."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckPlan:
    """Planned parts of a check, in order."""

    target: Target
    instance_type: str
    steps: tuple[tuple[str, Work | Skip], ...]


def lay_out(
    config: CheckConfig,
    level: Level,
    *,
    names: Collection[str],
    stress_time: timedelta | None = None,
) -> CheckPlan:
    """Plan the parts called ``names`` on this node; nothing is run."""
    kind = config.instance_type or instance_type(config.root)
    target = target_of(config, kind, level, stress_time=stress_time)
    steps = tuple((row.name, row.part(target)) for row in ROWS if row.name in names)
    return CheckPlan(target=target, instance_type=kind, steps=steps)


def target_of(
    config: CheckConfig, kind: str, level: Level, *, stress_time: timedelta | None = None
) -> Target:
    """Return this node, of the instance type ``kind``, as the target of a check."""
    path = config.command_path or f"{os.environ.get('PATH', os.defpath)}:{_PLACES_OF_AWS}"
    return Target(
        machine=Machine(root=config.root, path=path),
        equipment=equipment_for(kind, config.expected, config.root, at_once=True),
        thresholds=thresholds_of(kind, config.thresholds),
        level=level,
        stress_time=stress_time or STRESS_TIME[level],
        disk=config.disk,
        fabric_provider=config.fabric_provider,
        pair_time=config.pair_time,
        replay=ReplayPlan(
            command=config.replay_command,
            steps=config.replay_steps,
            timeout=config.replay_timeout,
        ),
    )


def node_name() -> str:
    """Return the name of this node: ``NODE_NAME``, as in a pod, or its host name."""
    return os.environ.get("NODE_NAME") or os.uname().nodename


def check_node(check_plan: CheckPlan, watcher: Watcher, clock: Clock) -> NodeCheck:
    """Run all parts, also after a part has failed."""
    started_at = clock.now()
    return NodeCheck(
        node=node_name(),
        instance_type=check_plan.instance_type,
        level=check_plan.target.level,
        started_at=started_at,
        parts=tuple(_make(check_plan, watcher, clock)),
    )


def _make(check_plan: CheckPlan, watcher: Watcher, clock: Clock) -> Iterator[PartResult]:
    left = sum((one.takes for _, one in check_plan.steps if isinstance(one, Work)), timedelta(0))
    for name, plan in check_plan.steps:
        if isinstance(plan, Work):
            watcher.begun(name, plan, left)
            left -= plan.takes
        result = replace(make_part(name, plan, check_plan.target, clock), kind=_KINDS[name])
        watcher.ended(result)
        yield result
