"""The controller on Slurm: how soon faults are marked and jobs resumed, what many nodes cost.

Needs Slurm's programs, as ``tests.engines.slurm_cluster`` does.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from bench import needs
from bench.figure import Figure
from holdfast.adapters.slurm.commands.node_text import parse_nodes
from holdfast.adapters.slurm.nodes.munge import Munge
from holdfast.adapters.slurm.nodes.reports import Reports
from holdfast.adapters.slurm.nodes.signatures import Trust, signed
from holdfast.adapters.slurm.nodes.state import Memory, RememberedNode
from holdfast.adapters.slurm.nodes.views import known_nodes, last_response_at, node_view
from holdfast.decisions.policy import RemediationPolicy
from holdfast.decisions.remediation import decide
from holdfast.kit.serial import to_plain
from holdfast.model.nodes import ClusterView, NodeRecord, Phase
from holdfast.model.report import NodeReport
from tests.engines.slurm_cluster import SlurmCluster, installed_slurm, running_munged
from tests.engines.slurm_machine import Machine

NODES: Final = 10_000
XID: Final = "NVRM: Xid (PCI:0000:b9:00): 74, pid=1, name=python, something"
_TICKS: Final = os.sysconf("SC_CLK_TCK")

# A node as Slurm 22.05 prints it; the recorded line of a node with eight GPUs.
_LINE: Final = (
    "NodeName=node{number} Arch=x86_64 CoresPerSocket=48  CPUAlloc=0 CPUEfctv=192 CPUTot=192"
    " CPULoad=6.95 AvailableFeatures=p5 ActiveFeatures=p5 Gres=gpu:h100:8 NodeAddr=node{number}"
    " NodeHostName=node{number} Port=6818 Version=22.05.8 OS=Linux 6.8.0 #1 SMP PREEMPT_DYNAMIC @0 "
    " RealMemory=2000000 AllocMem=0 FreeMem=1322200 Sockets=2 Boards=1 State=ALLOCATED"
    " ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=dev "
    " BootTime=2026-11-20T21:10:29 SlurmdStartTime=2026-11-21T01:37:29"
    " LastBusyTime=2026-11-21T01:37:29 CfgTRES=cpu=192,mem=2000000M,billing=192,gres/gpu=8"
    " AllocTRES=cpu=192,gres/gpu=8 CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s"
    " ExtSensorsWatts=0 ExtSensorsTemp=n/s"
)


def lacks() -> str:
    """What of Slurm cannot be had here."""
    return needs.slurm()


def run(*, quick: bool = False) -> list[Figure]:
    """Measure on a real cluster of four nodes, and on the answer of a large one."""
    figures = [_snapshot(3 if quick else 10)]
    with tempfile.TemporaryDirectory() as folder:
        return figures + _at_work(Path(folder), rounds=3 if quick else 20, idle_s=10.0)


def _snapshot(rounds: int) -> Figure:
    """A large cluster at work, from the text to the plan: processor time."""
    now = datetime.now(UTC)
    text = "\n".join(_LINE.format(number=number) for number in range(NODES))
    record = NodeRecord(phase=Phase.SCHEDULABLE, phase_since=now)
    memory = Memory()
    with (
        tempfile.TemporaryDirectory() as folder,
        running_munged(installed_slurm()) as socket,
    ):
        munge = Munge(str(socket))
        trust = Trust(credentials=munge, users=frozenset((os.geteuid(),)))
        for number in range(NODES):
            name = f"node{number}"
            memory.nodes[name] = RememberedNode(record=record, machine=f"m{number}")
            report = NodeReport(node=name, boot_id="b", sequence=1, reported_at=now)
            path = Path(folder) / f"{name}.json"
            whole = {"machine": f"m{number}", "report": to_plain(report)}
            path.write_text(signed(json.dumps(whole), munge), encoding="utf-8")
        reports = Reports(Path(folder), trust)
        reports.refresh(now)
        took = []
        for _ in range(rounds):
            began = time.process_time()
            facts = parse_nodes(text)
            reports.refresh(now)
            views = []
            for known in known_nodes(facts, reports.received(), memory).values():
                heartbeat_at = last_response_at(known, record, now, now)
                views.append(
                    node_view(known, record, memory, heartbeat_at=heartbeat_at, jobs=(), now=now)
                )
            decide(ClusterView(nodes=tuple(views)), RemediationPolicy(), now)
            took.append((time.process_time() - began) * 1000)
    return Figure(
        name=f"Slurm: {NODES} nodes read and decided", value=statistics.median(took), unit="ms",
        goal=300,
    )  # fmt: skip


def _at_work(folder: Path, *, rounds: int, idle_s: float) -> list[Figure]:
    with SlurmCluster(installed_slurm()) as slurm:
        (folder / "shared").mkdir()
        for machine in slurm.machines.values():
            machine.start("agent", _agent(machine, folder / "shared"))
        with _controller(slurm, folder) as process:
            slurm.until(lambda: _is_settled(folder))
            time.sleep(3)
            cpu = _cpu_share(process.pid, idle_s)
            latencies = sorted(_fault_to_fail(slurm, folder) for _ in range(rounds))
            resumed = [_fault_to_running(slurm, folder) for _ in range(min(rounds, 5))]
    p99 = latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]
    return [
        Figure(name="Slurm: kernel's line to node failed, p99", value=p99, unit="s", goal=1),
        Figure(
            name="Slurm: kernel's line to job running on the spare",
            value=max(resumed),
            unit="s",
            goal=5,
        ),
        Figure(name="Slurm: controller idle", value=cpu, unit="%", goal=0.5),
    ]


def _agent(machine: Machine, shared: Path) -> list[str]:
    config = machine.root / "agent.toml"
    config.write_text(
        f'node = "{machine.name}"\nroot = "{machine.root}"\nreport_dir = "{machine.root}/run"\n'
        f'log_files = []\nlogs_only = true\n[slurm]\nreport_dir = "{shared}"\n',
        encoding="utf-8",
    )
    return [sys.executable, "-m", "holdfast", "agent", "--config", str(config)]


@contextmanager
def _controller(slurm: SlurmCluster, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    config = folder / "controller.toml"
    config.write_text(
        f'platform = "slurm"\n[nodes]\nnode_recovery = "None"\n[slurm]\n'
        f'report_dir = "{folder}/shared"\nstate_dir = "{folder}/state"\nconf = "{slurm.conf}"\n',
        encoding="utf-8",
    )
    argv = [sys.executable, "-m", "holdfast", "controller", "--config", config, "--listen", "0"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, env=slurm.environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _is_settled(folder: Path) -> bool:
    return (folder / "log").read_text(encoding="utf-8").count("is schedulable") == 4


def _cpu_share(pid: int, seconds: float) -> float:
    """Percent of a core that a process uses, with the commands that it runs."""
    before = _cpu_s(pid)
    time.sleep(seconds)
    return (_cpu_s(pid) - before) / seconds * 100


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def _fault_to_fail(slurm: SlurmCluster, folder: Path) -> float:
    """Seconds from the line of the kernel to the FAIL of the node, in the eyes of scontrol."""
    machine = slurm.machines["node1"]
    began = time.monotonic()
    machine.log(XID)
    slurm.until(lambda: "FAIL" in slurm.state("node1"))
    took = time.monotonic() - began
    _release(slurm, folder)
    return took


def _fault_to_running(slurm: SlurmCluster, folder: Path) -> float:
    """Seconds from the line of the kernel until a job of two nodes runs again, on one other.

    Its ranks end at SIGTERM; others have KillWait more.
    """
    job = slurm.submit("-N2", "--comment=auto-resume=1", script="srun sleep 600")
    slurm.until(lambda: f"{job}: attempt 1 runs" in (folder / "log").read_text(encoding="utf-8"))
    time.sleep(5)  # so long slurmctld takes to save that it runs
    began = time.monotonic()
    slurm.machines["node1"].log(XID)
    slurm.until(lambda: _runs_again(slurm, job))
    took = time.monotonic() - began
    slurm.run("scancel", job)
    _release(slurm, folder)
    return took


def _runs_again(slurm: SlurmCluster, job: str) -> bool:
    state = slurm.run("squeue", "-h", "-j", job, "-O", "State:|,RestartCnt:|").strip()
    return state == "RUNNING|1|"


def _release(slurm: SlurmCluster, folder: Path) -> None:
    release = ["nodes", "release", "node1", "--state-dir", f"{folder}/state"]
    subprocess.run(
        [sys.executable, "-m", "holdfast", *release],
        env=slurm.environment, check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    slurm.until(lambda: slurm.state("node1") == {"IDLE"}, timedelta(minutes=1))
