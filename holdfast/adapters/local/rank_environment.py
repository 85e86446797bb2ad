"""Environment of one rank: the variables that launchers and frameworks read.

COMMAND is started once per node. With one process per node it is the worker itself, and gets the
variables that torchrun sets for a worker. With more, it is a launcher, such as torchrun,
``accelerate launch``, ``deepspeed`` or Lightning's own, that starts the workers and sets the rank
of each: it gets the variables of the node, and none of a worker, which all its workers would
inherit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_WORKER: Final = ("RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
"""Variables of a single worker. Lightning starts no workers if ``LOCAL_RANK`` is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendezvous:
    """Place of one node in the job, and address of the rendezvous."""

    node_rank: int
    nodes: int
    nproc_per_node: int
    master_addr: str
    master_port: int


def rank_environment(inherited: Mapping[str, str], node: Rendezvous) -> dict[str, str]:
    """Return the environment of COMMAND on one node.

    Args:
        inherited: environment of the submitter; its variables of a rank belong to another job.
        node: place of the node, and rendezvous.

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
    own = {name: value for name, value in inherited.items() if name not in _WORKER}
    return {**own, **given}
