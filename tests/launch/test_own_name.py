"""A coordinator whose own name is a loopback address on its machine, as on Debian."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from launch.launched import LIMIT_S, clean_environment

from tests.engines.ports import free_port

MACHINE = """
ip link set lo up && ip addr add 10.9.8.7/24 dev lo && ip route add default dev lo src 10.9.8.7
mount --bind "$1" /etc/hosts
shift
"$@" & "$@"
code=$?
wait $! && exit $code
"""
"""Runs two launchers on a machine with its own names and addresses."""

TRAIN = """
import os, socket, sys
port, folder = int(sys.argv[1]), sys.argv[2]
socket.create_connection(("10.9.8.7", port), timeout=30).close()
with open(os.path.join(folder, os.environ["RANK"]), "w") as file:
    file.write(os.environ["MASTER_ADDR"])
"""


@pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip"))), reason="needs root and ip"
)
@pytest.mark.parametrize(
    ("options", "address"), [((), "10.9.8.7"), (("--local-addr", "10.9.8.8"), "10.9.8.8")]
)
def test_launchers_of_other_nodes_reach_it_at_its_real_address(
    tmp_path: Path, options: tuple[str, ...], address: str
) -> None:
    hosts, path, port = tmp_path / "hosts", tmp_path / "train.py", free_port()
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node-a\n", encoding="utf-8")
    path.write_text(TRAIN, encoding="utf-8")
    machine = ("unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", MACHINE, "sh")
    meeting = ("--nnodes", "2", "--rdzv-endpoint", f"node-a:{port}", "--join-timeout", "30s")
    launcher = (sys.executable, "-m", "holdfast", "launch", *meeting, *options)
    done = subprocess.run(
        [*machine, hosts, *launcher, path, str(port), tmp_path],
        env=clean_environment(HOLDFAST_LAUNCH_KEY="0123456789abcdef"),
        capture_output=True,
        check=False,
        encoding="utf-8",
        timeout=LIMIT_S,
    )

    assert done.returncode == 0, done.stderr
    assert [(tmp_path / rank).read_text(encoding="utf-8") for rank in "01"] == [address] * 2
