"""Scheduler configurations and compute quotas of a server: their records, and their loop."""

import math
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.policies import DatabasePolicies
from holdfast.apps.api.reconciliation import ReconciliationThread
from holdfast.apps.clock import SystemClock
from holdfast.apps.target import TargetPlatform, Where
from holdfast.engine.policy_reconciler import PolicyPorts, PolicyReconciler
from holdfast.ports.team_queues import PolicyRecords

_CONNECTION: Final = "holdfast.apps.kubernetes.kueue_queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPolicies:
    """Records of policies, and the thread that applies them."""

    records: PolicyRecords
    thread: ReconciliationThread


def policies_of(
    where: Where, database: Database, opened: ExitStack, report: Callable[[str], None]
) -> RunningPolicies | None:
    """Policies of a server, applied from now on; None if its platform is not Kubernetes.

    Args:
        where: platform of the server.
        database: where they are stored.
        opened: exit stack for resources kept open.
        report: prints a message.

    Raises:
        ConfigError: the cluster cannot be found.

    """
    if where.place is not TargetPlatform.KUBERNETES:
        return None
    connect = import_module(_CONNECTION).connect_queues
    queues = opened.enter_context(closing(connect(where.kubeconfig, where.context)))
    records = DatabasePolicies(database)
    ports = PolicyPorts(records=records, queues=queues, clock=SystemClock(), report=report)
    thread = ReconciliationThread(PolicyReconciler(ports), lambda: math.inf)
    thread.start()
    opened.enter_context(closing(thread))
    return RunningPolicies(records=records, thread=thread)
