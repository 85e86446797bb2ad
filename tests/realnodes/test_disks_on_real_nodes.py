"""Faults of file systems on real nodes, with an agent that is not privileged."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from site_of_nodes import NAMESPACE, Site

from holdfast.adapters.host.sources import SOURCES
from holdfast.detectors.contract import Profile
from holdfast.detectors.table import detectors

EVENTS = "/api/v1/namespaces/default/events"
SIZE_MIB = 32


@pytest.fixture
def watching_disks(site: Site) -> Iterator[Site]:
    """Agents that read a file as their log and, of the state of their node, the disks alone."""
    others = [one.name for one in detectors(Profile.HYPERPOD) if one.reads & SOURCES.keys()]
    config = {
        "source": "files",
        "log_files": ["/host/var/log/kmsg"],
        "logs_only": False,
        "detectors": {
            **{name: {"enabled": False} for name in others},
            "disk-state": {"every": "500ms"},
        },
    }
    given = ("--set-json", f"agent.config={json.dumps(config)}", "--set", "agent.maxUnavailable=4")
    site.helm("upgrade", *given)
    yield site
    site.helm("upgrade")


def in_node(site: Site, name: str, *argv: str) -> None:
    """Run a command in the mount namespace of a node."""
    target = f"--target={site.cluster.nodes[name].pid}"
    done = subprocess.run(
        ["nsenter", target, "--mount", *argv], check=False, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr


def mount(site: Site, name: str, folder: Path) -> None:
    """Mount a new file system on a node, in a folder of its disk."""
    image = site.cluster.nodes[name].disk / f"{folder.name}.img"
    with image.open("wb") as file:
        file.truncate(SIZE_MIB << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m", "0", image], check=True)
    in_node(site, name, "mkdir", "--parents", str(folder))
    in_node(site, name, "mount", "-o", "loop", str(image), str(folder))


def warnings(site: Site, name: str) -> list[str]:
    events = site.cluster.plane.request("GET", EVENTS)["items"]
    ours = [one for one in events if one["involvedObject"]["name"] == name]
    return [f"{one['reason']}: {one['message']}" for one in ours]


def test_a_full_and_a_read_only_file_system_are_found_without_mounting_the_root_directory(
    watching_disks: Site,
) -> None:
    site, name = watching_disks, "node-2"
    agents = site.pods("app.kubernetes.io/component=agent", NAMESPACE)
    paths = {one["hostPath"]["path"] for pod in agents for one in pod["spec"]["volumes"]
             if "hostPath" in one}  # fmt: skip
    assert paths == {"/proc", "/sys", "/opt", "/tmp", "/var/log", "/run/holdfast"}
    assert not any(
        one["securityContext"]["privileged"] for pod in agents for one in pod["spec"]["containers"]
    )

    # Mounted after the agent began, below one of agent.diskPaths, and elsewhere.
    shown, hidden = Path("/var/log/scratch"), Path("/var/lib/elsewhere")
    for folder in (shown, hidden):
        mount(site, name, folder)
        fill = ("dd", "if=/dev/zero", f"of={folder}/fill", "bs=1M", f"count={SIZE_MIB * 7 // 8}")
        in_node(site, name, "sh", "-c", f"{' '.join(fill)} 2>/dev/null || :")
    site.until(
        lambda: [one for one in warnings(site, name) if "DiskFull" in one and str(shown) in one],
        "the notice about the full file system",
    )
    assert site.health(name) == "Schedulable"
    assert not [one for one in warnings(site, name) if str(hidden) in one]

    boot = site.cluster.nodes[name].boot_id
    in_node(site, name, "mount", "-o", "remount,ro", str(hidden))
    site.until(lambda: site.health(name) == "UnschedulablePendingReboot", "the fault")
    assert [one for one in warnings(site, name) if "FilesystemIsReadOnly" in one]
    site.until(lambda: site.cluster.nodes[name].boot_id != boot, "the reboot")
    site.until(lambda: name in site.in_service(), "the release")
