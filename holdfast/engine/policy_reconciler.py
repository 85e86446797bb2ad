"""Loop that brings the queues of teams to the state that policies request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final

from holdfast.decisions.team_queues import applied, failed, idle_flavors, team_queue
from holdfast.model.errors import BackendError, ProviderError, RetryLater
from holdfast.model.team_queues import NodeType, Policy, SchedulerConfig, TeamQueue
from holdfast.ports.clock import Clock
from holdfast.ports.team_queues import PolicyRecords, TeamQueues

INTERVAL: Final = timedelta(seconds=15)
"""Interval of two rounds: nodes join and leave, and people change objects."""

BUSY: Final = timedelta(seconds=2)
"""Interval while a policy is not applied or removed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyPorts:
    """Ports of the loop."""

    records: PolicyRecords
    queues: TeamQueues
    clock: Clock
    report: Callable[[str], None]
    """Receives a message for each failure."""


class PolicyReconciler:
    """Keeps no state that a restart would miss, and may be killed between any two calls."""

    def __init__(self, ports: PolicyPorts) -> None:
        self._ports = ports
        self._reported = ""  # reports each failure once

    def step(self) -> datetime:
        """Run one round; return the time of the next, unless a request comes before."""
        now = self._ports.clock.now()
        try:
            policies = self._ports.records.all()
            types = self._ports.queues.node_types() if policies else {}
            for cluster in dict.fromkeys(one.cluster_id for one in policies):
                members = [one for one in policies if one.cluster_id == cluster]
                self._apply(members, types)
            is_busy = any(one.failure or one.status.endswith("ing") for one in policies)
        except BackendError as error:
            self._report(str(error))
            return now + BUSY
        self._reported = ""
        return now + (BUSY if is_busy else INTERVAL)

    def wake(self, _name: str) -> None:
        """Reconcile at once: every round reconciles all."""

    def _apply(self, policies: Sequence[Policy], types: Mapping[str, NodeType]) -> None:
        """Apply the policies of a cluster: quotas first, since idle compute depends on them."""
        going = [one for one in policies if one.is_going]
        staying = [one for one in policies if not one.is_going]
        configs = [(one, one.scheduler) for one in staying if one.scheduler is not None]
        scheduler = configs[0][1] if configs else None
        for policy in going:
            self._save(policy, partial(self._ports.queues.remove, policy.id))
        queues: list[TeamQueue] = []
        for policy in staying:
            if policy.quota is not None:
                self._save(policy, partial(self._put_queue, policy, types, scheduler, queues))
        for policy, config in configs:
            put = partial(self._put_scheduler, policy, config, types, queues)
            self._save(policy, put)

    def _put_queue(
        self,
        policy: Policy,
        types: Mapping[str, NodeType],
        scheduler: SchedulerConfig | None,
        queues: list[TeamQueue],
    ) -> bool:
        if policy.quota is not None:
            try:
                queue = team_queue(policy.quota, types, scheduler, _cohort(policy.cluster_id))
            except ValueError as error:
                raise ProviderError(str(error)) from error
            queues.append(queue)
            self._ports.queues.put_queue(policy.id, queue)
        return False

    def _put_scheduler(
        self,
        policy: Policy,
        config: SchedulerConfig,
        types: Mapping[str, NodeType],
        queues: Sequence[TeamQueue],
    ) -> bool:
        self._ports.queues.put_priorities(policy.id, config.priorities)
        idle = idle_flavors(types, queues) if config.shares_idle else ()
        self._ports.queues.put_idle(policy.id, _cohort(policy.cluster_id), idle)
        return False

    def _save(self, policy: Policy, act: Callable[[], bool]) -> None:
        """Apply or remove a policy, and store the result: True means that it is gone."""
        after: Policy | None
        try:
            is_gone = act()
        except RetryLater:
            raise
        except ProviderError as error:
            after = failed(policy, str(error)[:1024])
            self._report(f"{policy.name}: {error}")
        else:
            after = None if is_gone else policy if policy.is_going else applied(policy)
        if after != policy:
            self._ports.records.save(policy, after)

    def _report(self, text: str) -> None:
        if self._reported != text:
            self._reported = text
            self._ports.report(text)


def _cohort(cluster: str) -> str:
    return f"cluster-{cluster}"
