"""What the doctor of a Slurm cluster finds beside its settings: pure."""

import re
from collections.abc import Iterator
from datetime import timedelta
from ipaddress import ip_address
from typing import Final

from holdfast.adapters.slurm.install.examined import Examined
from holdfast.kit.units import format_duration
from holdfast.model.jobs import JobSpec

_SUPERVISORS_RETRIES: Final = re.compile(r" --max-retries=([0-9]{1,9})(?= |$)")
RETRIES: Final = JobSpec(name="", nodes=1).max_retries
"""How many restarts a job may have that does not say it itself."""

_SKEW: Final = timedelta(seconds=1)
"""A job that is requeued is started 2 s ahead, by the clock of the controller."""


def fixed_addresses(cluster: Examined) -> Iterator[str]:
    """Static nodes whose address is a number, where another machine gets another one."""
    if not cluster.replace or cluster.replace == "slurm-power":
        return
    for name, node in cluster.nodes.items():
        try:
            address = ip_address(node.get("NodeAddr", ""))
        except ValueError:
            continue
        if not address.is_loopback and "CLOUD" not in node.get("State", "").split("+"):
            yield name


def invalid_nodes(cluster: Examined) -> Iterator[str]:
    """Nodes that have registered with less than slurm.conf says."""
    return (
        name
        for name, node in cluster.nodes.items()
        if "INVALID_REG" in node.get("State", "").split("+")
    )


def missing_agents(cluster: Examined) -> Iterator[str]:
    """Nodes of which no agent has reported."""
    if cluster.agents is not None:
        yield from cluster.nodes.keys() - cluster.agents.keys()


def silent_agents(cluster: Examined) -> Iterator[str]:
    """Nodes whose agent has not reported for long, and for how long."""
    for name, agent in (cluster.agents or {}).items():
        if agent.age > cluster.stale_after and name in cluster.nodes:
            yield f"{name} ({format_duration(agent.age)})"


def skewed_clocks(cluster: Examined) -> Iterator[str]:
    """Nodes whose clock is ahead, and by how much."""
    for name, agent in (cluster.agents or {}).items():
        if agent.skew > _SKEW:
            yield f"{name} ({format_duration(agent.skew)})"


def trouble(cluster: Examined) -> Iterator[str]:
    """Why Slurm cannot be asked."""
    if cluster.trouble:
        yield cluster.trouble


def lacks_plugin(cluster: Examined) -> Iterator[str]:
    """Where the line of the plugin is missing."""
    if not cluster.plugin:
        where = cluster.settings.get("PlugStackConfig", "plugstack.conf")
        yield f"no line for it in {where}" if cluster.has_plugstack else f"there is no {where}"


def does_not_load(cluster: Examined) -> Iterator[str]:
    """The line of a plugin that srun has not loaded."""
    if cluster.plugin and not cluster.has_option:
        yield f"srun does not know --auto-resume in spite of: {cluster.plugin}"


def other_retries(cluster: Examined) -> Iterator[str]:
    """Where supervisors and the controller stop after another number of restarts."""
    said = [int(one) for one in _SUPERVISORS_RETRIES.findall(cluster.plugin)]
    supervisors = said[-1] if said else RETRIES
    if cluster.plugin and cluster.max_retries not in (None, supervisors):
        yield f"slurm.max_retries={cluster.max_retries}, of supervisors {supervisors}"


def closed_supervisor(cluster: Examined) -> Iterator[str]:
    """What keeps users from running the supervisor, though the doctor's own user can."""
    if cluster.has_supervisor and cluster.supervisor_closed:
        yield f"other users cannot pass or run {cluster.supervisor_closed}"
