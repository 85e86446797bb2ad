"""What decides about the nodes and the jobs of this machine."""

from holdfast.adapters.local.cluster import LocalCluster
from holdfast.adapters.local.jobs import LocalJobs
from holdfast.adapters.local.machines import LocalMachines
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.run.settings import LocalJobPolicy, LocalNodePolicy
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
    """Those of nodes and jobs that share a store.

    Args:
        cluster: the nodes.
        machines: who owns their machines.
        jobs: the jobs on them.
        store: where incidents are remembered.
        events: is told what happens.
        clock: the time.
        node_policy: for nodes; jobs mind it, too.
        job_policy: for jobs.

    """
    nodes = NodePorts(
        cluster=cluster, provider=machines, incidents=store, events=events, clock=clock
    )
    theirs = JobPorts(jobs=jobs, cluster=cluster, incidents=store, events=events, clock=clock)
    resume = ResumePolicy(job=job_policy, nodes=node_policy)
    return NodeReconciler(nodes, node_policy), JobReconciler(theirs, resume)
