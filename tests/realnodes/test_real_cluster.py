"""What tests on real nodes rely on: nothing of a cluster is left behind, and two do not meet."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from site_of_nodes import Site

ROOT = Path(__file__).parents[2]
ANOTHER = """
import json, sys, time
from pathlib import Path
from tests.engines.real_cluster import RealCluster
programs = {name: Path(path) for name, path in json.loads(sys.argv[1]).items()}
with RealCluster(programs, ("node-1",)) as cluster:
    node = cluster.nodes["node-1"]
    pod = {"metadata": {"name": "pause"}, "spec": {"nodeName": "node-1", "containers": [
        {"name": "pause", "image": "machine.test/pause:test", "imagePullPolicy": "Never"}]}}
    path = "/api/v1/namespaces/default/pods"
    cluster.plane.request("POST", path, pod)
    cluster.until(lambda: cluster.plane.request("GET", f"{path}/pause")["status"]["phase"]
                  == "Running", "the pod to run")
    found = {"address": str(node.place.address), "cgroup": cluster.network.cgroup,
             "folders": [str(node.disk), str(cluster.plane.folder)]}
    print(json.dumps(found), flush=True)
    time.sleep(600)
"""


def started(programs: Mapping[str, Path]) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """A process with a cluster of its own, in which a pod runs, and what can be seen of it."""
    paths = json.dumps({name: str(path) for name, path in programs.items()})
    process = subprocess.Popen(
        [sys.executable, "-c", ANOTHER, paths], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    return process, json.loads(process.stdout.readline())


def cgroups(name: str) -> list[str]:
    found = subprocess.run(
        ["find", "/sys/fs/cgroup", "-type", "d", "-path", f"*/{name}*"],
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    return found.stdout.splitlines()


def processes(text: str) -> list[int]:
    """Processes that have a text in their environment or arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            known = path.joinpath("environ").read_bytes() + path.joinpath("cmdline").read_bytes()
        except OSError:
            continue
        if text.encode() in known and int(path.name) != os.getpid():
            found.append(int(path.name))
    return found


def test_of_a_killed_test_nothing_is_left_and_another_cluster_goes_on(
    site: Site, node_programs: dict[str, Path]
) -> None:
    addresses = {node.place.address.exploded for node in site.cluster.nodes.values()}
    process, seen = started(node_programs)
    try:
        assert seen["address"] not in addresses
        assert cgroups(seen["cgroup"])
        assert processes(seen["folders"][0])
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()

    site.until(lambda: not any(map(Path.exists, map(Path, seen["folders"]))), "the folders to go")
    for folder in seen["folders"]:
        site.until(lambda folder=folder: not processes(folder), "the processes to end")
    assert cgroups(seen["cgroup"]) == []
    site.until(lambda: len(site.in_service()) == 4, "the first cluster to go on")


def test_a_node_without_power_is_the_same_machine_in_another_boot_afterwards(site: Site) -> None:
    node = site.cluster.nodes[site.in_service()[0]]
    before = node.boot_id
    machine = site.cluster.node(node.name)["status"]["nodeInfo"]["machineID"]

    node.power_off()
    assert processes(f"{node.disk}/") == []
    node.boot()
    first = node.pid
    node.boot()  # as a test does that ends while the machine's owner reboots it
    assert node.pid == first
    site.until(lambda: site.cluster.is_ready(node.name), "the node to be Ready")

    after = site.cluster.node(node.name)["status"]["nodeInfo"]
    assert after["bootID"] == node.boot_id != before
    assert after["machineID"] == machine
