"""The configuration of a throw-away Slurm cluster."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_SETTINGS: Final = {
    "ClusterName": "throw-away",
    "CredType": "cred/munge",
    "AuthType": "auth/munge",
    "ProctrackType": "proctrack/linuxproc",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "SchedulerType": "sched/backfill",
    "SchedulerParameters": "bf_interval=1,sched_interval=2,batch_sched_delay=0",
    "SlurmdParameters": "config_overrides",  # a node may claim more than the machine has
    "LogTimeFormat": "iso8601_ms",
    "GresTypes": "gpu",
    "JobRequeue": "1",
    "InactiveLimit": "0",
    "WaitTime": "0",
    "KillWait": "3",
    "MinJobAge": "300",
    "MessageTimeout": "5",
    "ReturnToService": "0",
    # slurmctld counts the answers to a ping, sent every third of this, when the last node has
    # answered or MessageTimeout is over: with 6, one node that is off takes all others DOWN.
    "SlurmdTimeout": "20",
    "SlurmctldTimeout": "10",
    "BatchStartTimeout": "10",
    "SuspendTime": "3600",  # finite, or all of power saving is off
    "SuspendTimeout": "2",
    "ResumeTimeout": "60",  # a slurmd that fails to register tries again after many seconds
    "PrivateData": "cloud",  # else sinfo hides nodes that are powered down
    "TreeWidth": "65533",
    "SlurmctldParameters": "reboot_from_controller,idle_on_node_suspend,"
    "power_save_interval=1,power_save_min_interval=0",
}

_UNTIL_23: Final = {
    "SwitchType": "switch/none",
    "TaskPlugin": "task/none",
    "AccountingStorageType": "accounting_storage/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "MpiDefault": "none",
}
"""Names for "nothing" that later versions do not know: there, leaving them out means it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredNode:
    """One line ``NodeName`` and its GPUs."""

    name: str
    port: int
    gpus: int
    devices: Path
    """What the paths of its GPUs begin with."""

    is_cloud: bool = False
    """Whether it is off until Slurm wants it."""


def slurm_conf(
    folder: Path,
    nodes: Iterable[ConfiguredNode],
    settings: Mapping[str, str],
    *,
    host: str,
    is_old: bool,
) -> str:
    """The text of ``slurm.conf``.

    Args:
        folder: where everything is kept.
        nodes: all of them; they are in one partition.
        settings: more parameters, or other values.
        host: the name of this machine.
        is_old: whether it is for a version before 23.

    """
    values = {
        **_SETTINGS,
        **(_UNTIL_23 if is_old else {}),
        "AuthInfo": f"socket={folder}/munge.sock,cred_expire=5",  # 5 is the least that is taken
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool/%n",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
        "SlurmctldLogFile": f"{folder}/slurmctld.log",
        "SlurmdLogFile": f"{folder}/slurmd.%n.log",
        "PlugStackConfig": f"{folder}/plugstack.conf",
        **settings,
    }
    lines = [f"{key}={value}" for key, value in values.items()]
    for node in nodes:
        gpus = f" Gres=gpu:h100:{node.gpus}" if node.gpus else ""
        lines.append(
            f"NodeName={node.name} NodeHostname={host} NodeAddr=127.0.0.1 Port={node.port}"
            f" CPUs=2 RealMemory=1000 State={'CLOUD' if node.is_cloud else 'UNKNOWN'}{gpus}"
        )
    lines.append("PartitionName=dev Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    return "\n".join(lines) + "\n"


def gres_conf(nodes: Iterable[ConfiguredNode], found: Mapping[str, int]) -> str:
    """The text of ``gres.conf``; ``found`` is the number of GPUs that each node still has."""
    return "".join(
        f"NodeName={node.name} Name=gpu Type=h100 File={node.devices}{_range(found[node.name])}\n"
        for node in nodes
        if node.gpus and found[node.name]
    )


def _range(count: int) -> str:
    return "0" if count == 1 else f"[0-{count - 1}]"
