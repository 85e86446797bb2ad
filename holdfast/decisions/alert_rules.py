"""Alert rules: the single definition of Prometheus' alerts and of those that the console shows.

``tools/render_alerts.py`` writes them to the chart as rules for Prometheus. ``alerts.py`` evaluates
those that follow from stored state.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final

from holdfast.decisions.save_age import OVERDUE_INTERVALS
from holdfast.kit.units import format_duration

REFUSALS: Final = 3
"""Refusals of an order before people are notified: providers throttle, and lack capacity for
minutes."""

REFUSED_WITHIN: Final = timedelta(minutes=30)
REPAIR_SLOW: Final = timedelta(hours=2)
"""A replacement takes 20 to 30 minutes."""

SHARE_OUT: Final = 0.2
"""Share of the nodes out of service, which is the default of ``max_unavailable``."""

FAILED_WITHIN: Final = timedelta(minutes=10)
JOB_WAITS: Final = timedelta(minutes=30)
JOB_STOPS: Final = timedelta(minutes=15)
FAILURES: Final = 10
"""Failed attempts of one kind within ``FAILURES_WITHIN``."""

FAILURES_WITHIN: Final = timedelta(hours=1)


class AlertSeverity(StrEnum):
    """Values of the label ``severity``."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRule:
    """One alert."""

    name: str
    severity: AlertSeverity
    expr: str
    """Condition in PromQL."""

    lasts: timedelta = timedelta(0)
    """Time for which the condition must hold (``for``)."""

    summary: str
    description: str


BREAKER_OPEN: Final = AlertRule(
    name="HoldfastBreakerOpen",
    severity=AlertSeverity.CRITICAL,
    expr="max(holdfast_breaker_open) == 1",
    summary="Circuit breaker open, all repairs paused",
    description=(
        "Too many nodes turned faulty at once, so a wrong detector is the likely cause. Nodes are "
        "still marked. Inspect their faults, then run holdfast nodes reset-breaker."
    ),
)
NO_LEADER: Final = AlertRule(
    name="HoldfastNoLeader",
    severity=AlertSeverity.CRITICAL,
    expr="(max(holdfast_controller_is_leader) or vector(0)) == 0",
    lasts=timedelta(minutes=2),
    summary="No Holdfast controller is active",
    description=(
        "Agents mark faulty nodes, but no node is repaired. Check the pods of holdfast-controller "
        "and its Lease."
    ),
)
CONTROLLER_STUCK: Final = AlertRule(
    name="HoldfastControllerStuck",
    severity=AlertSeverity.CRITICAL,
    expr=(
        "holdfast_controller_is_leader == 1 "
        "and increase(holdfast_controller_rounds_total[10m]) == 0"
    ),
    lasts=timedelta(minutes=5),
    summary="The leading Holdfast controller is stuck: {{ $labels.instance }}",
    description=(
        "It holds the lease and does not reconcile. Check its log; the other replica takes over."
    ),
)
ORDERS_REFUSED: Final = AlertRule(
    name="HoldfastOrdersRefused",
    severity=AlertSeverity.WARNING,
    expr=(
        'sum by (remedy) (increase(holdfast_repairs_total{outcome="postponed"}'
        f"[{format_duration(REFUSED_WITHIN)}])) >= {REFUSALS}"
    ),
    summary="The provider refuses orders to {{ $labels.remedy }}",
    description=(
        f"{{{{ $value | humanize }}}} orders were refused within {REFUSED_WITHIN.seconds // 60} "
        "minutes. kubectl get events shows the reason, for example permissions, capacity or "
        "throttling."
    ),
)
REPAIR_IS_SLOW: Final = AlertRule(
    name="HoldfastRepairSlow",
    severity=AlertSeverity.WARNING,
    expr=(
        "max by (NodeName) (hyperpod_node_health_status_unschedulable_pending_replacement == 1 "
        "or hyperpod_node_health_status_unschedulable_pending_reboot == 1)"
    ),
    lasts=REPAIR_SLOW,
    summary="{{ $labels.NodeName }} has been under repair for two hours",
    description=(
        "A replacement takes 20 to 30 minutes. kubectl get incidents shows the progress; with "
        "node_recovery None the repair needs a request."
    ),
)
MANY_NODES_OUT: Final = AlertRule(
    name="HoldfastManyNodesOut",
    severity=AlertSeverity.WARNING,
    expr=(
        'sum(max by (phase) (holdfast_nodes{phase!="schedulable"})) '
        f"/ sum(max by (phase) (holdfast_nodes)) > {SHARE_OUT}"
    ),
    lasts=timedelta(minutes=15),
    summary="{{ $value | humanizePercentage }} of the nodes are out of service",
    description=(
        "Further repairs are deferred while max_unavailable nodes are out of service. kubectl get "
        "incidents shows the reasons."
    ),
)
AGENT_DOWN: Final = AlertRule(
    name="HoldfastAgentDown",
    severity=AlertSeverity.WARNING,
    expr='up{job="holdfast-agent"} == 0',
    lasts=timedelta(minutes=5),
    summary="The agent of {{ $labels.node }} is down",
    description="Faults of this node are not detected. Check the log of its pod.",
)
AGENT_BLIND: Final = AlertRule(
    name="HoldfastAgentBlind",
    severity=AlertSeverity.WARNING,
    expr="sum by (node, device) (increase(holdfast_agent_detector_failures_total[1h])) > 0",
    lasts=timedelta(minutes=15),
    summary="The agent of {{ $labels.node }} cannot read {{ $labels.device }}",
    description=(
        "Faults in this source are not detected. The agent's log and the node's Events show the "
        "reason."
    ),
)
NODE_FAULTY: Final = AlertRule(
    name="HoldfastNodeFaulty",
    severity=AlertSeverity.INFO,
    expr='sum by (node, condition, reason, remedy) (holdfast_agent_faults{remedy!=""}) > 0',
    lasts=timedelta(minutes=15),
    summary="{{ $labels.node }}: {{ $labels.reason }} calls for {{ $labels.remedy }}",
    description="The fault has lasted for 15 minutes.",
)
JOB_FAILED: Final = AlertRule(
    name="HoldfastJobFailed",
    severity=AlertSeverity.WARNING,
    expr=(
        'sum(increase(holdfast_jobs_finished_total{outcome="failed"}'
        f"[{format_duration(FAILED_WITHIN)}])) > 0"
    ),
    summary="A job has failed permanently",
    description=(
        "Its retries are exhausted, or it cannot be retried. holdfast jobs list shows the job and "
        "the reason, holdfast jobs describe the failure of each attempt."
    ),
)
JOB_WAITING: Final = AlertRule(
    name="HoldfastJobWaits",
    severity=AlertSeverity.WARNING,
    expr=(
        'max by (job_name) (holdfast_job_phase_seconds{phase="waiting"}) '
        f"> {JOB_WAITS.total_seconds():.0f}"
    ),
    summary="{{ $labels.job_name }} has waited for {{ $value | humanizeDuration }}",
    description=(
        "Too few nodes are available, or its queue does not admit it. holdfast jobs describe "
        "shows the reason."
    ),
)
JOB_NOT_STOPPING: Final = AlertRule(
    name="HoldfastJobDoesNotStop",
    severity=AlertSeverity.WARNING,
    expr=(
        'max by (job_name) (holdfast_job_phase_seconds{phase="stopping"}) '
        f"> {JOB_STOPS.total_seconds():.0f}"
    ),
    summary="Ranks of {{ $labels.job_name }} do not terminate",
    description=(
        "The job cannot resume until they do. SIGKILL does not end a process that waits for a "
        "device or for NFS. Reboot its node with holdfast nodes reboot."
    ),
)
JOBS_FAIL_OFTEN: Final = AlertRule(
    name="HoldfastJobsFailOften",
    severity=AlertSeverity.WARNING,
    expr=(
        'sum by (kind) (increase(holdfast_job_failures_total{kind!="requested"}'
        f"[{format_duration(FAILURES_WITHIN)}])) >= {FAILURES}"
    ),
    summary="{{ $value | humanize }} attempts failed within an hour: {{ $labels.kind }}",
    description=(
        "Each failure costs the work since the last checkpoint. holdfast incidents list shows the "
        "nodes, and holdfast jobs describe the reasons."
    ),
)
CHECKPOINT_OVERDUE: Final = AlertRule(
    name="HoldfastCheckpointOverdue",
    severity=AlertSeverity.WARNING,
    expr=(
        "time() - holdfast_checkpoint_newest_verified_timestamp_seconds "
        f"> {OVERDUE_INTERVALS} * holdfast_checkpoint_save_interval_seconds"
    ),
    summary="No good checkpoint in {{ $labels.directory }} for {{ $value | humanizeDuration }}",
    description=(
        f"That is more than {OVERDUE_INTERVALS} save intervals: saves fail, are damaged or contain "
        "NaN, or the job does not run. holdfast checkpoint list shows them. A failure now repeats "
        "the steps since then."
    ),
)

RULES: Final = (
    BREAKER_OPEN,
    NO_LEADER,
    CONTROLLER_STUCK,
    ORDERS_REFUSED,
    REPAIR_IS_SLOW,
    MANY_NODES_OUT,
    AGENT_DOWN,
    AGENT_BLIND,
    NODE_FAULTY,
    JOB_FAILED,
    JOB_WAITING,
    JOB_NOT_STOPPING,
    JOBS_FAIL_OFTEN,
    CHECKPOINT_OVERDUE,
)
"""All rules, in the order in which Prometheus lists them."""
