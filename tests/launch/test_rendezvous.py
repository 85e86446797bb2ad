"""Where launchers meet, from options and from the variables of a Slurm step."""

from collections.abc import Mapping

import pytest

from holdfast.apps.launch.options import LaunchOptions, parse
from holdfast.decisions.launch_runs import RunName
from holdfast.model.errors import ConfigError

KEY = {"HOLDFAST_LAUNCH_KEY": "0123456789abcdef"}
STEP = {
    "SLURM_JOB_ID": "9001",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_NODELIST": "gpu-[07-08],gpu-12",
    "SLURM_NODEID": "1",
    **KEY,
}


def parsed(*options: str, variables: Mapping[str, str] = KEY) -> LaunchOptions:
    return parse([*options, "train.py"], variables)


def place(options: LaunchOptions) -> tuple[str, int, int, int | None]:
    met = options.rendezvous
    assert met is not None
    return met.host, met.port, met.nodes, met.node_rank


def test_one_node_needs_no_rendezvous() -> None:
    assert parsed("--rdzv-endpoint", "a:1").rendezvous is None
    assert parsed("--nnodes", "1").rendezvous is None
    assert parsed("--nnodes", "2", "--standalone").rendezvous is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--nnodes", "2", "--rdzv-endpoint", "a:77"), ("a", 77, 2, None)),
        (("--nnodes", "2:3", "--rdzv-endpoint", "a"), ("a", 29400, 2, None)),
        (("--nnodes", "2", "--rdzv-endpoint", "[::1]:77"), ("::1", 77, 2, None)),
        (
            ("--nnodes", "4", "--master-addr", "a", "--master-port", "78", "--node-rank", "0"),
            ("a", 78, 4, 0),
        ),
    ],
)
def test_options_of_torchrun_name_the_endpoint(
    options: tuple[str, ...], expected: tuple[str, int, int, int | None]
) -> None:
    assert place(parsed(*options)) == expected


def test_variables_of_the_kubeflow_operator_name_the_endpoint() -> None:
    variables = {"PET_NNODES": "2", "PET_NODE_RANK": "1", "PET_RDZV_ENDPOINT": "job-0:29500"}
    options = parsed(variables=KEY | variables)

    assert place(options) == ("job-0", 29500, 2, 1)
    assert options.node_rank == 1


def test_a_step_of_slurm_names_its_nodes() -> None:
    options = parsed(variables=STEP)

    assert place(options) == ("gpu-07", 20_001, 2, 1)
    assert options.node_rank == 1
    assert place(parsed(variables=STEP | {"SLURM_NODEID": "0"})) == ("gpu-07", 20_001, 2, 0)


def test_steps_of_a_job_meet_at_different_ports() -> None:
    steps = [parsed(variables=STEP | {"SLURM_STEP_ID": str(step)}) for step in range(20)]
    assert len({place(one)[1] for one in steps}) == 20


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ((), "9001.3"),
        (("--nnodes", "1:2", "--rdzv-endpoint", "a:5"), "9001.3"),
        (("--nnodes", "2:3"), ""),  # the third launcher is in another step
    ],
)
def test_a_run_is_known_by_the_step_that_has_all_of_its_launchers(
    options: tuple[str, ...], step: str
) -> None:
    met = parsed(*options, "--rdzv-id", "a", variables=STEP | {"SLURM_STEP_ID": "3"}).rendezvous
    assert met is not None
    assert met.run == RunName(run_id="a", step=step)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("n1,n2", "n1"), ("n[3,5]", "n3"), ("n[01-10]-ib", "n01-ib"), ("rack1-n7", "rack1-n7")],
)
def test_the_first_host_of_a_step_is_its_endpoint(nodes: str, first: str) -> None:
    assert place(parsed(variables=STEP | {"SLURM_STEP_NODELIST": nodes}))[0] == first


def test_options_come_before_the_step_of_slurm() -> None:
    options = parsed("--nnodes", "1:2", "--rdzv-endpoint", "a:5", variables=STEP)
    assert place(options) == ("a", 5, 1, 1)
    assert parsed("--nnodes", "1", variables=STEP).rendezvous is None


def test_one_launcher_runs_on_each_node_of_a_step() -> None:
    with pytest.raises(ConfigError, match="--ntasks-per-node=1"):
        parsed(variables=STEP | {"SLURM_STEP_NUM_TASKS": "8"})
