"""Environment of a rank: the variables that training frameworks read."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.decisions.flight_recorder import recorder_defaults, recorder_environment
from holdfast.decisions.launch_losses import loss_variables
from holdfast.decisions.launch_orders import Order


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFiles:
    """Files of a rank."""

    error: str
    """Written by PyTorch's ``@record`` when the rank fails."""

    dumps: str
    """Directory for dumps of PyTorch's flight recorder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobNames:
    """Values of a job that all ranks share."""

    run_id: str
    role: str
    max_restarts: int


def rank_environment(
    inherited: Mapping[str, str],
    order: Order,
    local_rank: int,
    slots: int,
    names: JobNames,
    files: RankFiles,
) -> dict[str, str]:
    """Return the environment of a rank.

    Args:
        inherited: environment of the launcher.
        order: order to run a round.
        local_rank: rank within the node.
        slots: number of ranks on the node.
        names: values that all ranks share.
        files: files of the rank.

    """
    rank, world = str(order.first_rank + local_rank), str(order.world_size)
    node, nodes = str(order.node_rank), str(order.nodes)
    local, local_world = str(local_rank), str(slots)
    given = {
        "RANK": rank,
        "LOCAL_RANK": local,
        "WORLD_SIZE": world,
        "LOCAL_WORLD_SIZE": local_world,
        "GROUP_RANK": node,
        "GROUP_WORLD_SIZE": nodes,
        "ROLE_NAME": names.role,
        "ROLE_RANK": rank,
        "ROLE_WORLD_SIZE": world,
        "MASTER_ADDR": order.master_addr,
        "MASTER_PORT": str(order.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(order.history.total),
        "TORCHELASTIC_MAX_RESTARTS": str(names.max_restarts),
        "TORCHELASTIC_RUN_ID": names.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",  # rank 0 serves the store
        "TORCHELASTIC_ERROR_FILE": files.error,
        "NODE_RANK": node,  # Lightning
        "LOCAL_SIZE": local_world,  # DeepSpeed, with the next two
        "CROSS_RANK": node,
        "CROSS_SIZE": nodes,
        "JAX_COORDINATOR_ADDRESS": f"{order.master_addr}:{order.master_port}",
        "HOLDFAST_LAUNCH_ROUND": str(order.round),
        **_mpi_names(rank, world, local, local_world),
        **loss_variables(order.history, inherited),
    }
    recorder = recorder_environment(inherited, files.dumps)
    environment = {**recorder, **with_defaults(inherited, slots), **given}
    if order.rotation:
        environment |= _shifted_devices(environment, order.rotation)
    return environment


def _mpi_names(rank: str, world: str, local: str, local_world: str) -> dict[str, str]:
    """Return what scripts read that ``mpirun`` starts: the variables of Open MPI and of MPICH.

    They connect nobody: for both libraries, each rank stays a world of its own.
    """
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": world,
        "OMPI_COMM_WORLD_LOCAL_RANK": local,
        "OMPI_COMM_WORLD_LOCAL_SIZE": local_world,
        "OMPI_COMM_WORLD_NODE_RANK": local,
        "PMI_RANK": rank,
        "PMI_SIZE": world,
        "MPI_LOCALRANKID": local,
        "MPI_LOCALNRANKS": local_world,
    }


def launcher_environment(
    inherited: Mapping[str, str], order: Order, files: RankFiles
) -> dict[str, str]:
    """Return the environment of a launcher such as torchrun, which numbers the ranks itself.

    It has torchrun's variables, and no more: what it starts would inherit them. torchrun restarts
    nothing by itself, because it restarts only the ranks of its own node.

    Args:
        inherited: environment of this launcher.
        order: order to run a round.
        files: files of the launcher.

    """
    given = {
        "PET_NNODES": str(order.nodes),
        "PET_NODE_RANK": str(order.node_rank),
        "PET_MASTER_ADDR": order.master_addr,
        "PET_MASTER_PORT": str(order.master_port),
        "PET_RDZV_BACKEND": "static",
        "PET_RDZV_ENDPOINT": "",
        "PET_MAX_RESTARTS": "0",
        "TORCHELASTIC_ERROR_FILE": files.error,
        "HOLDFAST_LAUNCH_ROUND": str(order.round),
    }
    return {**recorder_environment(inherited, files.dumps), **inherited, **given}


def with_defaults(inherited: Mapping[str, str], slots: int) -> dict[str, str]:
    """Return the environment of the launcher with torchrun's defaults for what is not set.

    The flight recorder is on, too.
    """
    defaults = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **recorder_defaults(inherited)}
    if slots > 1:
        defaults["OMP_NUM_THREADS"] = "1"
    return {**defaults, **inherited}


def _shifted_devices(environment: Mapping[str, str], places: int) -> dict[str, str]:
    """Return CUDA_VISIBLE_DEVICES in another order, so that local ranks get other devices."""
    listed = environment.get("CUDA_VISIBLE_DEVICES")
    devices = listed.split(",") if listed else [str(number) for number in range(count_gpus())]
    if len(devices) < 2:
        return {}
    shift = places % len(devices)
    return {"CUDA_VISIBLE_DEVICES": ",".join(devices[shift:] + devices[:shift])}


def count_gpus() -> int:
    """Return the number of NVIDIA GPUs whose device files exist."""
    names = [name.removeprefix("nvidia") for name in os.listdir("/dev")]
    return sum(name.isdecimal() for name in names)
