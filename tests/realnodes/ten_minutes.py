"""A cluster of real nodes for people, as the tutorial "Kubernetes in ten minutes" uses it.

``ten_minutes.py DIR`` starts it, until it is interrupted. DIR gets what
people need: a configuration for kubectl, values for the chart, and the kernel log of each node.
"""

import json
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

from machine_owner import MachineOwner
from site_of_nodes import Site

from tests.engines.real_cluster import REAL_PROGRAMS, RealCluster, missing_for_nodes
from tools.control_plane import provide

CLIENTS = ("kubectl", "helm")
NAMES = ("node-1", "node-2", "node-3", "node-4")


def describe(site: Site, binaries: Mapping[str, Path], folder: Path) -> None:
    """Write what people need into an empty directory."""
    shutil.copyfile(site.kubeconfig, folder / "kubeconfig")
    (folder / "values.json").write_text(json.dumps(site.values()), encoding="utf-8")
    (folder / "bin").mkdir()
    for name in CLIENTS:
        (folder / "bin" / name).symlink_to(binaries[name])
    for name, node in site.cluster.nodes.items():
        (folder / name).symlink_to(node.disk / "log")
    lines = (f'export KUBECONFIG="{folder}/kubeconfig"', f'export PATH="{folder}/bin:$PATH"')
    (folder / "env").write_text("\n".join(lines) + "\n", encoding="utf-8")


def main(argv: list[str]) -> int:
    """Start a cluster and wait for an interrupt."""
    if reason := missing_for_nodes():
        print(f"cannot start: {reason}", file=sys.stderr)  # noqa: T201
        return 2
    folder = Path(argv[0]).absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    binaries = provide(*REAL_PROGRAMS, *CLIENTS)
    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    with (
        tempfile.TemporaryDirectory() as scratch,
        RealCluster(binaries, NAMES) as cluster,
        MachineOwner(cluster) as owner,
    ):
        Path(scratch).chmod(0o755)
        describe(Site(cluster, owner, binaries, Path(scratch)), binaries, folder)
        print("The cluster is up. Press Ctrl-C to remove it.", flush=True)  # noqa: T201
        stopped.wait()
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
