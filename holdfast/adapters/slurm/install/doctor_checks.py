"""Checks of the Slurm doctor on nodes, agents and the plugin; each yields what it found. Pure."""

import re
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from typing import Final

from holdfast.adapters.slurm.install.cluster_facts import ClusterFacts
from holdfast.kit.units import format_duration
from holdfast.model.jobs import JobSpec

_SUPERVISORS_RETRIES: Final = re.compile(r" --max-retries=([0-9]{1,9})(?= |$)")
RETRIES: Final = JobSpec(name="", nodes=1).max_retries
"""Restarts of a job without ``max-retry`` in its Comment."""

_VERSION: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?=[.-]|$)")
_EXPEDITED: Final = "enable_expedited_requeue"
_EXPEDITED_SINCE: Final = (25, 11)
"""Release of Slurm: https://slurm.schedmd.com/news.html."""

_SKEW: Final = timedelta(seconds=1)
"""Half of the 2 s that a requeued job starts ahead, by the clock of slurmctld."""


def fixed_addresses(cluster: ClusterFacts) -> Iterator[str]:
    """Static nodes whose NodeAddr is an IP address, which changes with the machine."""
    if not cluster.replace or cluster.replace == "slurm-power":
        return
    for name, node in cluster.nodes.items():
        try:
            address = ip_address(node.get("NodeAddr", ""))
        except ValueError:
            continue
        if not address.is_loopback and "CLOUD" not in node.get("State", "").split("+"):
            yield name


def invalid_nodes(cluster: ClusterFacts) -> Iterator[str]:
    """Nodes that registered with fewer resources than slurm.conf defines."""
    return (
        name
        for name, node in cluster.nodes.items()
        if "INVALID_REG" in node.get("State", "").split("+")
    )


def lacks_expedited_requeue(cluster: ClusterFacts) -> bool:
    """Return whether Slurm has ``--requeue=expedite``, and the cluster does not allow it."""
    found = _VERSION.match(cluster.settings.get("SLURM_VERSION", ""))
    has_option = found is not None and (int(found[1]), int(found[2])) >= _EXPEDITED_SINCE
    return has_option and _EXPEDITED not in cluster.items("SlurmctldParameters")


def missing_agents(cluster: ClusterFacts) -> Iterator[str]:
    """Nodes whose agent has never reported."""
    if cluster.agents is not None:
        yield from cluster.nodes.keys() - cluster.agents.keys()


def silent_agents(cluster: ClusterFacts) -> Iterator[str]:
    """Nodes whose last report is old, with its age."""
    for name, agent in (cluster.agents or {}).items():
        if agent.age > cluster.stale_after and name in cluster.nodes:
            yield f"{name} ({format_duration(agent.age)})"


def skewed_clocks(cluster: ClusterFacts) -> Iterator[str]:
    """Nodes whose clock is ahead, with the difference."""
    for name, agent in (cluster.agents or {}).items():
        if agent.skew > _SKEW:
            yield f"{name} ({format_duration(agent.skew)})"


def problem(cluster: ClusterFacts) -> Iterator[str]:
    """Error of slurmctld."""
    if cluster.problem:
        yield cluster.problem


def lacks_plugin(cluster: ClusterFacts) -> Iterator[str]:
    """The plugstack.conf without a line for the plugin."""
    if not cluster.plugin:
        where = cluster.settings.get("PlugStackConfig", "plugstack.conf")
        yield f"no plugin line in {where}" if cluster.has_plugstack else f"{where} does not exist"


def does_not_load(cluster: ClusterFacts) -> Iterator[str]:
    """Line of a plugin that srun has not loaded."""
    if cluster.plugin and not cluster.has_option:
        yield f"srun has no option --auto-resume, but plugstack.conf has: {cluster.plugin}"


def other_retries(cluster: ClusterFacts) -> Iterator[str]:
    """Restart limits of supervisors and controller that differ."""
    given = [int(one) for one in _SUPERVISORS_RETRIES.findall(cluster.plugin)]
    supervisors = given[-1] if given else RETRIES
    if cluster.plugin and cluster.max_retries not in (None, supervisors):
        yield f"slurm.max_retries={cluster.max_retries}, supervisors {supervisors}"


def closed_supervisor(cluster: ClusterFacts) -> Iterator[str]:
    """Path that prevents other users from executing the supervisor."""
    if cluster.has_supervisor and cluster.supervisor_closed:
        yield f"other users cannot execute {cluster.supervisor_closed}"
