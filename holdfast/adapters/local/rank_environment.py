"""The environment of one rank: what launchers and frameworks read to find each other.

COMMAND is started once on each node. With one process on each node it is the worker itself, and
gets what torchrun gives to a worker. With more, it is a launcher, such as torchrun, ``accelerate
launch``, ``deepspeed`` or Lightning's own, that starts the workers and gives each its rank: it gets
what holds for the node, and no variable of a worker, which all its workers would inherit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_WORKER: Final = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""What holds for one worker alone. Lightning starts no worker where ``LOCAL_RANK`` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Where one node is in the job, and where the ranks meet."""

    node_rank: int
    nodes: int
    nproc_per_node: int
    master_addr: str
    master_port: int


def rank_environment(inherited: Mapping[str, str], node: Rendezvous) -> dict[str, str]:
    """The environment of COMMAND on one node.

    Args:
        inherited: that of who started the job; what it says of a rank is of another job.
        node: the node.

    """
    rank, port = str(node.node_rank), str(node.master_port)
    given = {
        "MASTER_ADDR": node.master_addr,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(node.nodes * node.nproc_per_node),
        "NODE_RANK": rank,
        "GROUP_RANK": rank,
        "PET_NNODES": str(node.nodes),
        "PET_NODE_RANK": rank,
        "PET_NPROC_PER_NODE": str(node.nproc_per_node),
        "PET_MASTER_ADDR": node.master_addr,
        "PET_MASTER_PORT": port,
    }
    if node.nproc_per_node == 1:
        given |= {"RANK": rank, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    kept = {name: value for name, value in inherited.items() if name not in _WORKER}
    return {**kept, **given}
