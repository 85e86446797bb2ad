"""Builds reconcilers and agent command lines for nodes and jobs on this machine."""

import sys
from collections.abc import Sequence

from holdfast.adapters.local.cluster import LocalCluster
from holdfast.adapters.local.jobs import LocalJobs
from holdfast.adapters.local.layout import NodeDir
from holdfast.adapters.local.machines import LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.run.settings import LocalJobPolicy, LocalNodePolicy, MachineSettings
from holdfast.decisions.job_resume import ResumePolicy
from holdfast.engine.job_reconciler import JobPorts, JobReconciler
from holdfast.engine.node_reconciler import NodePorts, NodeReconciler
from holdfast.ports.clock import Clock
from holdfast.ports.events import EventSink


def reconcilers(
    cluster: LocalCluster,
    machines: LocalMachines,
    jobs: LocalJobs,
    store: LocalStore,
    *,
    events: EventSink,
    clock: Clock,
    node_policy: LocalNodePolicy,
    job_policy: LocalJobPolicy,
) -> tuple[NodeReconciler, JobReconciler]:
    """Return reconcilers of nodes and of jobs that share a store.

    Args:
        cluster: the nodes.
        machines: the provider of their machines.
        jobs: the jobs on them.
        store: the store of incidents.
        events: the sink of their events.
        clock: clock.
        node_policy: policy of nodes, which the reconciler of jobs observes, too.
        job_policy: policy of jobs.

    """
    nodes = NodePorts(
        cluster=cluster, provider=machines, incidents=store, events=events, clock=clock
    )
    job_ports = JobPorts(jobs=jobs, cluster=cluster, incidents=store, events=events, clock=clock)
    resume = ResumePolicy(job=job_policy, nodes=node_policy)
    return NodeReconciler(nodes, node_policy), JobReconciler(job_ports, resume)


def agent_command(name: str, directory: NodeDir, machines: MachineSettings) -> Sequence[str]:
    """Return the command line of the agent of a local machine."""
    heartbeat_ms = round(machines.heartbeat.total_seconds() * 1000)
    return [
        sys.executable, "-m", "holdfast.apps.agent.main",
        "--node", name,
        "--kmsg", str(directory.kmsg),
        "--boot-id-file", str(directory.boot_id),
        "--report-dir", str(directory.agent),
        "--heartbeat", f"{heartbeat_ms}ms",
        "--xid-profile", machines.xid_profile,
        "--logs-only",
    ]  # fmt: skip
