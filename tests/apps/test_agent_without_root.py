"""An agent without root: the journal by its group, and what each source then reads."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.adapters.host.sources import SOURCES
from holdfast.detectors.contract import KERNEL_LOG, Profile
from holdfast.detectors.table import detectors

CHECKOUT = Path(__file__).parents[2]
GUIDE = CHECKOUT / "docs/howto/install-on-kubernetes.md"
REMOTE = "/usr/lib/systemd/systemd-journal-remote"
USER, JOURNAL_GROUP = 65532, 4242
RECORDED = [
    json.loads(text)
    for text in (CHECKOUT / "tests/recordings/kernel-lines/reported.jsonl").read_text().splitlines()
]
"""Real lines, with the reason that they lead to."""

OF_LOG = [one for one in detectors(Profile.HYPERPOD) if KERNEL_LOG in one.reads]
# A lost GPU would explain the messages of its driver.
LINES = [
    "Out of memory: Killed process 6841 (python3) total-vm:8388608kB",
    "NVRM: Xid (PCI:0000:b9:00): 48, pid=1, name=python, DBE (double bit error)",
    "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32",
    "NVRM: The NVIDIA probe routine failed for 1 device(s).",
    "EDAC skx MC4: CPU 0: Machine Check Event: 0 Bank 255:940000000000009f",
]
for one in (one for one in OF_LOG if not one.name.startswith("gpu-")):
    ours = [x["line"] for x in RECORDED if x["reason"] in one.reasons]
    LINES += [line for line in ours if not line.startswith("[") and "\n" not in line][:4]

FIELDS = """__REALTIME_TIMESTAMP={time}
__MONOTONIC_TIMESTAMP={time}
_BOOT_ID=11111111111111111111111111111111
_MACHINE_ID={machine}
_TRANSPORT=kernel
SYSLOG_FACILITY=0
PRIORITY=4
MESSAGE={message}

"""
READ_SOURCES = """
import json, sys
from datetime import timedelta
from pathlib import Path
from holdfast.adapters.host.machine import Machine
from holdfast.adapters.host.sources import SOURCES, plans
every = dict.fromkeys(SOURCES, timedelta(seconds=1))
found = plans(every, Machine(root=Path(sys.argv[1]), path="/nonexistent"))
print(json.dumps({name: sorted(one.read().values) for name, one in found.items()}))
"""

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="the agent changes its user: run as root"),
    pytest.mark.skipif(
        not Path(REMOTE).exists() or shutil.which("journalctl") is None,
        reason="no journal can be written: apt-get install systemd-journal-remote",
    ),
]


@dataclass
class Node:
    """A directory with the journal of a node, its runtime's socket, and this machine's state."""

    root: Path

    def run(self, *argv: str, groups: tuple[int, ...] = ()) -> subprocess.CompletedProcess[str]:
        """Run Python as the user of the agent, which can find it."""
        user = [f"--reuid={USER}", f"--regid={USER}", "--no-new-privs", "--bounding-set=-all"]
        user += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
        command = shlex.join(["exec", "setpriv", *user, sys.executable, *argv])
        script = "\n".join(["set -eu", *opened(self.root / "open"), command])
        return subprocess.run(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", script],
            cwd=self.root, check=False, capture_output=True, encoding="utf-8",
        )  # fmt: skip

    def agent(self, *groups: int) -> subprocess.CompletedProcess[str]:
        """One report of an agent without root that is in ``groups``."""
        return self.run(*self.options(), groups=groups)

    def options(self) -> list[str]:
        files = (
            "--config",
            str(self.root / "agent.toml"),
            "--boot-id-file",
            f"{self.root}/boot_id",
        )
        once = ("--root", str(self.root), "--once", "--output", "json")
        return ["-m", "holdfast", "agent", "--node", "n1", *files, *once]


def from_log(text: str) -> set[tuple[str, str]]:
    """Reasons and devices of the findings that detectors of the kernel log may have."""
    report = json.loads(text)
    reasons = frozenset().union(*(one.reasons for one in OF_LOG))
    found = [*report["faults"], *report["notices"]]
    return {(one["reason"], one["device"]) for one in found if one["reason"] in reasons}


def opened(place: Path) -> Iterator[str]:
    """Commands that let every user reach this Python and checkout, in a mount namespace."""
    tops: dict[Path, list[Path]] = {}
    for path in dict.fromkeys(map(Path, (sys.base_prefix, sys.prefix, CHECKOUT))):
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 0o001:
                tops.setdefault(parent, []).append(path)
                break
    for top, paths in tops.items():
        copy = place / top.relative_to("/")
        for path in paths:
            target = shlex.quote(str(copy / path.relative_to(top)))
            yield f"mkdir -p {target}; mount --bind {shlex.quote(str(path))} {target}"
        yield f"mount --rbind {shlex.quote(str(copy))} {shlex.quote(str(top))}"


@pytest.fixture
def node() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="holdfast-node-", dir="/tmp"))
    root.chmod(0o755)
    for name in ("proc", "sys"):
        (root / name).symlink_to(f"/{name}")
    (root / "boot_id").write_text("b1\n", encoding="utf-8")
    (root / "agent.toml").write_text('source = "journald"\n', encoding="utf-8")
    machine = Path("/etc/machine-id").read_text(encoding="utf-8").strip()
    folder = root / "var/log/journal" / machine
    folder.mkdir(parents=True)
    journal = folder / "system.journal"
    records = [
        FIELDS.format(time=1763640000000000 + number, machine=machine, message=line)
        for number, line in enumerate(LINES, start=1)
    ]
    subprocess.run(
        [REMOTE, f"--output={journal}", "-"],
        input="".join(records), check=True, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    for path, mode in ((folder, 0o2750), (journal, 0o640)):  # as systemd-tmpfiles sets them
        os.chown(path, 0, JOURNAL_GROUP)
        path.chmod(mode)
    runtime = root / "run/containerd/containerd.sock"
    runtime.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(runtime))
        runtime.chmod(0o660)
        listener.listen()
        yield Node(root)
    shutil.rmtree(root)


def test_the_group_of_the_journal_finds_in_the_kernel_log_what_root_finds(node: Node) -> None:
    as_root = subprocess.run(
        [sys.executable, *node.options()], check=False, capture_output=True, encoding="utf-8"
    )
    found = from_log(node.agent(JOURNAL_GROUP).stdout)

    assert found == from_log(as_root.stdout)
    reasons = {reason for reason, _ in found}
    assert [one.name for one in OF_LOG if not one.reasons & reasons] == []


def test_without_the_group_the_agent_says_that_it_reads_no_log(node: Node) -> None:
    done = node.agent()

    assert json.loads(done.stdout)["faults"] == []
    assert "cannot evaluate logs: " in done.stderr


def test_the_other_sources_read_the_same_as_root(node: Node) -> None:
    script = node.root / "read.py"
    script.write_text(READ_SOURCES, encoding="utf-8")
    as_root = subprocess.run(
        [sys.executable, script, node.root], check=True, capture_output=True, encoding="utf-8"
    )
    as_user = node.run(str(script), str(node.root))
    assert as_user.returncode == 0, as_user.stderr
    full, less = json.loads(as_root.stdout), json.loads(as_user.stdout)

    assert {"memory", "clock", "processes", "disks", "runtime"} <= full.keys()
    assert full.keys() == less.keys()
    assert "containerd" in full["runtime"]
    assert "containerd" not in less["runtime"]
    assert {name for name in full if full[name] != less[name]} <= {
        name for name, source in SOURCES.items() if source.needs_root
    }


def test_the_guide_names_the_detectors_that_need_root() -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("### Without root")[2]
    table = section.partition("| Detector | Without root |")[2].partition("\n\n")[0]
    named = {
        name
        for row in table.splitlines()[2:]
        for name in re.findall("`([^`]+)`", row.split("|")[1])
    }

    assert "those of the kernel log" in table
    assert named == {
        one.name
        for one in detectors(Profile.HYPERPOD)
        if KERNEL_LOG not in one.reads
        and any(SOURCES[name].needs_root for name in one.reads & SOURCES.keys())
    }
