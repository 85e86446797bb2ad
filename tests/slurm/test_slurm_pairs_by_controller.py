"""Tests between nodes as jobs, which the controller begins, on a real Slurm."""

import json
import re
import sys
from collections.abc import Iterator

import pytest
from slurm_fleet_at_work import Fleet

from holdfast.adapters.slurm.commands.checks import PREFIX
from holdfast.adapters.slurm.settings import CheckSettings
from holdfast.model.names import Reason
from tests.engines.slurm_cluster import SlurmCluster

NODES = ("node1", "node2", "node3", "node4")
PAIR = """
import json, os, pathlib, subprocess, sys
folder, *command = sys.argv[1:]
nodes = subprocess.run(["scontrol", "show", "hostnames"], check=True, capture_output=True,
                       encoding="utf-8").stdout.split()
with open(pathlib.Path(folder) / "pairs", "a") as pairs:
    pairs.write(" ".join(nodes) + chr(10))
if "node3" in nodes:
    said = {"summary": "failed: tcp: slow", "measured": {"pair_tcp_mb_per_s": 2.0}}
    pathlib.Path(os.environ["HOLDFAST_CHECK_RESULT"]).write_text(json.dumps(said))
    sys.exit(1)
sys.exit(subprocess.run(command).returncode)
"""


@pytest.fixture
def slurm(programs) -> Iterator[SlurmCluster]:
    with SlurmCluster(programs, nodes=NODES) as cluster:
        yield cluster


def settings(fleet: Fleet) -> str:
    """The provider, a check that passes, and a test that fails with node3 and is real otherwise."""
    config = fleet.folder / "check.toml"
    config.write_text('pair_time = "100ms"\n[thresholds.default]\npair_tcp_us = 0\n')
    srun, options = CheckSettings().pair_command[:3], CheckSettings().pair_command[4:]
    real = [*srun, sys.executable, "-m", "holdfast", *options, "--config", str(config)]
    pair = [sys.executable, "-c", PAIR, str(fleet.folder), *real, "--only", "tcp"]
    check = f'[slurm.check]\ncommand = ["true"]\npair_command = {json.dumps(pair)}'
    return f"{fleet.by_command()}\n{check}"


def made(fleet: Fleet) -> int:
    records = [fleet.record(node) for node in NODES]
    return sum(len(one.pairing.tests) for one in records if one is not None and one.pairing)


def left(fleet: Fleet) -> list[str]:
    """Reservations of checks."""
    return re.findall(rf"{PREFIX}\w+", fleet.scontrol("-o", "show", "reservation"))


def test_a_bad_node_is_found_by_jobs_over_two_nodes_whoever_controls(fleet: Fleet) -> None:
    nodes = "deep_check_on_start = true\ndeep_check_pairs = true\n"
    given = {"provider": settings(fleet), "wait": False}
    first = fleet.control(nodes=nodes, **given)
    fleet.until(lambda: made(fleet) >= 1)
    first.kill()
    job = fleet.slurm.submit("-N1", "-w", "node1", script="true")
    second = fleet.control(nodes=nodes, **given)
    for count in (4, 8):  # each within a minute
        fleet.until(lambda count=count: made(fleet) >= count)
    assert fleet.slurm.jobs()[job] == "PENDING"
    second.kill()
    fleet.control(nodes=f'{nodes}deep_check_timeout = "1s"', **given)

    fleet.until(lambda: fleet.orders)
    fleet.until(lambda: fleet.slurm.jobs()[job] == "COMPLETED")
    fleet.until(lambda: not left(fleet))

    assert fleet.orders == [["replace", "node3"]]
    (incident,) = fleet.incidents
    assert (incident.node, incident.reason) == ("node3", Reason.PAIR_FAILED)
    assert "failed: tcp: slow" in incident.message
    for node in ("node1", "node2", "node4"):
        (check,) = fleet.record(node).checks
        assert check.passed
        assert check.measured["pair_tcp_mb_per_s"] > 0
    pairs = (fleet.folder / "pairs").read_text(encoding="utf-8").split("\n")[:-1]
    assert all(len(set(pair.split())) == 2 for pair in pairs)
    assert len(pairs) == made(fleet)
