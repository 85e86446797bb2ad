"""State of local file systems, from written tables of mounts and in a real container."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.adapters.host import host_state
from holdfast.detectors.disk_state import LEAST_PERCENT
from tests.engines.host_tools import require_tool


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def test_options_of_a_file_system_are_not_those_of_its_mount(tmp_path: Path) -> None:
    lines = (
        "25 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw,discard\n"
        "30 25 259:2 / /my\\040data rw,relatime - xfs /dev/nvme1n1 ro,noquota\n"
        "31 25 259:1 /var /bound ro,relatime - ext4 /dev/root rw\n"
        "34 25 259:3 / /held ro,relatime - ext4 /dev/nvme2n1 rw\n"
        "32 25 0:20 / /proc rw - proc proc rw\n"
        "33 25 0:21 / /nfs rw - nfs4 server:/x rw\n"
        "damaged - line\n"
    )
    write(tmp_path, {"proc/self/mountinfo": lines})

    values = host_state.disks(tmp_path)

    assert {name: text for name, text in values.items() if name.endswith("options")} == {
        "//options": "rw,discard",
        "/my data/options": "ro,noquota",
        "/held/options": "rw",
    }
    assert "//writable" in values
    assert "/my data/writable" not in values
    assert 0 < float(values["//free"]) <= 100


def test_the_mounts_are_those_of_the_machine_where_they_may_be_seen(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "proc/1/mountinfo": "25 1 259:1 / / rw - ext4 /dev/root rw\n",
            "proc/self/mountinfo": "25 1 259:1 / /in/a/container rw - ext4 /dev/root rw\n",
        },
    )

    assert "//options" in host_state.disks(tmp_path)
    (tmp_path / "proc/1/mountinfo").unlink()
    assert "/in/a/container/options" in host_state.disks(tmp_path)


def test_space_is_measured_on_a_mount_of_this_process_or_not_at_all(tmp_path: Path) -> None:
    machine = (
        "25 1 259:1 / / rw - ext4 /dev/root rw\n"
        "26 25 259:2 / /scratch rw - xfs /dev/nvme1n1 rw\n"
        "27 25 259:3 / /unreachable rw - xfs /dev/nvme2n1 rw\n"
        "28 25 259:4 / /covered rw - xfs /dev/nvme3n1 rw\n"
    )
    container = (
        "90 1 0:77 / / rw - overlay overlay rw,upperdir=/var/lib/x\n"
        f"91 90 259:1 /opt {tmp_path} ro - ext4 /dev/root rw\n"
        "92 90 259:2 / /dev rw - xfs /dev/nvme1n1 rw\n"
        "93 90 259:4 / /run rw - xfs /dev/nvme3n1 rw\n"
        "94 93 259:2 / /run rw - xfs /dev/nvme1n1 rw\n"
    )
    write(tmp_path, {"proc/1/mountinfo": machine, "proc/self/mountinfo": container})

    values = host_state.disks(tmp_path)

    assert {name for name in values if name.endswith("/options")} == {
        "//options", "/scratch/options", "/unreachable/options", "/covered/options",
    }  # fmt: skip
    assert {name for name in values if name.endswith("/free")} == {"//free", "/scratch/free"}
    assert values["/scratch/free"] == free("/dev") != values["//free"] == free(tmp_path)


def free(path: Path | str) -> str:
    found = os.statvfs(path)
    return f"{100 * found.f_bavail / found.f_blocks:.2f}"


NODE = r"""
set -eu
for name in shown hidden; do
    truncate --size 16M "$PLACE/$name.img"
    mkfs.ext4 -q -m 0 "$PLACE/$name.img"
    mkdir "$PLACE/$name"
    mount -o loop "$PLACE/$name.img" "$PLACE/$name"
    dd if=/dev/zero of="$PLACE/$name/fill" bs=1M 2>/dev/null || :
done
mount -o remount,ro "$PLACE/hidden"
mkdir --parents "$PLACE/host/proc" "$PLACE/host/data"
unshare --mount sh -c "$CONTAINER"
"""
CONTAINER = r"""
set -eu
mount --bind /proc "$PLACE/host/proc"
mount --bind "$PLACE/shown" "$PLACE/host/data"
umount "$PLACE/shown" "$PLACE/hidden"
exec "$PYTHON" -c "$READ" "$PLACE/host"
"""
READ = """
import json, sys
from pathlib import Path
from holdfast.adapters.host import host_state
print(json.dumps(host_state.disks(Path(sys.argv[1]))))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts file systems: run as root")
def test_a_container_measures_the_file_systems_that_are_mounted_in_it(tmp_path: Path) -> None:
    require_tool("mkfs.ext4")
    given = {"CONTAINER": CONTAINER, "PLACE": str(tmp_path), "PYTHON": sys.executable, "READ": READ}
    machine = ("--mount", "--pid", "--fork", "--mount-proc", "--propagation", "private")
    done = subprocess.run(
        ["unshare", *machine, "--kill-child", "sh", "-c", NODE],
        env={**os.environ, **given},
        check=False,
        capture_output=True,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout)

    shown, hidden = tmp_path / "shown", tmp_path / "hidden"
    assert float(values[f"{shown}/free"]) < LEAST_PERCENT
    assert f"{shown}/writable" in values
    assert f"{hidden}/free" not in values
    assert "ro" in values[f"{hidden}/options"].split(",")
