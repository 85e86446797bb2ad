"""What in a cluster's configuration would make auto-resume fail or slow: pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.adapters.slurm.install.examined import Examined
from holdfast.adapters.slurm.install.findings import (
    RETRIES,
    closed_supervisor,
    does_not_load,
    fixed_addresses,
    invalid_nodes,
    lacks_plugin,
    missing_agents,
    other_retries,
    silent_agents,
    skewed_clocks,
    trouble,
)

_NUMBER: Final = re.compile(r"\d+")
_AT_ALLOCATION: Final = frozenset(("alloc", "contain", "nohold", "runinjob", "x11"))
"""PrologFlags that run the Prolog when nodes are allocated; all but the first imply it."""

_SHOWN: Final = 5
"""Names that are told; there may be thousands."""


class Severity(StrEnum):
    """What a trap means for jobs."""

    ERROR = "error"
    """They are not resumed."""

    WARNING = "warning"
    """Some are not, or time and work are lost."""

    NOTE = "note"
    """It works; there is something to know."""


Look = Callable[[Examined], Iterator[str]]


@dataclass(frozen=True, slots=True)
class Trap:
    """One row of the table."""

    name: str
    severity: Severity
    why: str
    """Why auto-resume would fail, or be slow."""

    change: str
    """The line to change, or what else to do."""

    look: Look
    """Tells what was found, if it is so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A trap that the cluster is in."""

    trap: str
    severity: Severity
    found: str
    why: str
    change: str


def examine(cluster: Examined) -> list[Finding]:
    """All traps that the cluster is in, in the order of the table.

    Of a cluster that does not answer, nothing but the first two can be told.
    """
    return [
        Finding(
            trap=trap.name,
            severity=trap.severity,
            found=found,
            why=trap.why,
            change=trap.change,
        )
        for trap in (TRAPS[:2] if cluster.trouble else TRAPS)
        for found in trap.look(cluster)
    ]


def _setting(key: str, is_bad: Callable[[Examined], bool]) -> Look:
    """Tells the setting if it is bad."""

    def look(cluster: Examined) -> Iterator[str]:
        if is_bad(cluster):
            yield f"{key}={cluster.settings.get(key, '(not set)')}"

    return look


def _when(found: str, is_so: Callable[[Examined], bool]) -> Look:
    def look(cluster: Examined) -> Iterator[str]:
        if is_so(cluster):
            yield found

    return look


def _named(what: str, names: Callable[[Examined], Iterator[str]]) -> Look:
    """Tells some of the nodes for which something is so."""

    def look(cluster: Examined) -> Iterator[str]:
        all_names = sorted(names(cluster))
        if all_names:
            more = len(all_names) - _SHOWN
            shown = ", ".join(all_names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
            yield f"{what}: {shown}"

    return look


def _prologs_hold(cluster: Examined) -> bool:
    has = cluster.is_set("Prolog")
    return has and "nohold_on_prolog_fail" not in cluster.words("SchedulerParameters")


def _prologs_at_launch(cluster: Examined) -> bool:
    flags = {word.strip().lower() for word in cluster.words("PrologFlags")}
    return cluster.is_set("Prolog") and not flags & _AT_ALLOCATION


def _cred_expire(cluster: Examined) -> bool:
    words = [word for word in cluster.words("AuthInfo") if word.startswith("cred_expire=")]
    return not words or int(_NUMBER.findall(words[-1])[0] if _NUMBER.search(words[-1]) else 0) > 30


def _hides_nodes(cluster: Examined) -> bool:
    return "nodes" in cluster.words("PrivateData")


def _waits_too_short(cluster: Examined) -> bool:
    return cluster.number("UnkillableStepTimeout", 60) < 5 * cluster.number("MessageTimeout", 10)


def _power_saving(cluster: Examined) -> bool:
    return cluster.replace == "slurm-power" and (
        not cluster.is_set("ResumeProgram")
        or not cluster.is_set("SuspendProgram")
        or _NUMBER.match(cluster.settings.get("SuspendTime", "")) is None
    )


TRAPS: Final = (
    Trap(
        "slurmctld-away", Severity.ERROR,
        "nothing can be done with nodes or jobs",
        "systemctl restart slurmctld; SLURM_CONF must name the slurm.conf of the cluster",
        trouble,
    ),
    Trap(
        "munge", Severity.ERROR,
        "no command of Slurm works without it, nor with clocks that are 5 minutes apart",
        "systemctl restart munge; the same munge.key, and a clock that is kept right, everywhere",
        _when("a credential that is made here cannot be read here", lambda c: not c.has_munge),
    ),
    Trap(
        "plugin-missing", Severity.ERROR,
        "srun, sbatch and salloc refuse --auto-resume; a Comment auto-resume=1 works without it",
        "holdfast slurm install", lacks_plugin,
    ),
    Trap(
        "plugin-does-not-load", Severity.ERROR,
        "a plugin is bound to the version of Slurm for which it was compiled",
        "install the headers of this Slurm, then: holdfast slurm install", does_not_load,
    ),
    Trap(
        "plugin-required", Severity.WARNING,
        "a plugin that cannot be loaded, such as after an upgrade of Slurm, then stops every job",
        "plugstack.conf: optional instead of required",
        _when("the plugin is required", lambda c: c.plugin.split()[:1] == ["required"]),
    ),
    Trap(
        "supervisor-missing", Severity.ERROR,
        "srun --auto-resume=1 runs without a supervisor: the modes step and swap do nothing",
        "plugstack.conf: supervisor=PATH of a holdfast that every node has at that place",
        _when("the program after supervisor= cannot be run here", lambda c: not c.has_supervisor),
    ),
    Trap(
        "supervisor-closed", Severity.ERROR,
        "the supervisor runs as the owner of a job, who cannot execute that program: srun"
        " --auto-resume=1 runs without it",
        "chmod o+x on that path, or a holdfast at a place that every user may enter, such as /opt;"
        " and in plugstack.conf supervisor=PATH of it", closed_supervisor,
    ),
    Trap(
        "other-retries", Severity.WARNING,
        "supervisors do not read the controller's configuration: in the modes step, swap and resize"
        " a job that does not say max-retry itself is resumed another number of times",
        "plugstack.conf: --max-retries=N behind supervisor=..., with N as in controller.toml",
        other_retries,
    ),
    Trap(
        "controller-away", Severity.ERROR,
        "nobody fails broken nodes, reserves others, or requeues jobs",
        "systemctl enable --now holdfast-controller",
        _when("no controller is at work with the state directory",
              lambda c: c.is_controlled is False),
    ),
    Trap(
        "agents-missing", Severity.ERROR,
        "the faults of these nodes are not found, and they are never repaired",
        "on each of them: holdfast slurm install --role compute; or let report_dir be shared",
        _named("no report of", missing_agents),
    ),
    Trap(
        "agents-silent", Severity.WARNING,
        "a fault there is not known until the agent reports again",
        "systemctl restart holdfast-agent; the directory must be mounted there",
        _named("the last report is old", silent_agents),
    ),
    Trap(
        "job-requeue", Severity.ERROR,
        "Slurm requeues no job that was submitted without --requeue",
        "slurm.conf: JobRequeue=1",
        _setting("JobRequeue", lambda c: c.number("JobRequeue", 1) == 0),
    ),
    Trap(
        "max-batch-requeue", Severity.WARNING,
        f"after so many requeues Slurm holds a job for good; {RETRIES} are allowed to one here",
        f"slurm.conf: MaxBatchRequeue={RETRIES + 1} or more",
        _setting("MaxBatchRequeue", lambda c: c.number("MaxBatchRequeue", 1000) <= RETRIES),
    ),
    Trap(
        "prolog-holds-jobs", Severity.ERROR,
        "a Prolog that fails leaves its job at priority 0 until somebody releases it",
        "slurm.conf: SchedulerParameters=...,nohold_on_prolog_fail",
        _setting("SchedulerParameters", _prologs_hold),
    ),
    Trap(
        "prolog-at-launch", Severity.ERROR,
        "the Prolog runs when a step is launched: a job whose check fails has failed, and does not"
        " begin elsewhere",
        "slurm.conf: PrologFlags=Alloc", _setting("PrologFlags", _prologs_at_launch),
    ),
    Trap(
        "clocks", Severity.WARNING,
        "a requeued job starts 2 s ahead by the clock of slurmctld; where clocks differ by more,"
        " its credential is refused and Slurm ends it",
        "run chrony or ntpd on these nodes",
        _named("their clocks are ahead of that of the shared directory", skewed_clocks),
    ),
    Trap(
        "return-to-service", Severity.WARNING,
        "mode=swap needs 2: otherwise Slurm takes a node that rebooted from its job, or leaves it"
        " DOWN",
        "slurm.conf: ReturnToService=2",
        _setting("ReturnToService", lambda c: c.number("ReturnToService", 0) != 2),
    ),
    Trap(
        "slurmd-timeout", Severity.WARNING,
        "a node that vanishes is DOWN only after that time, and srun waits for it; 0 is never",
        "slurm.conf: SlurmdTimeout=60 to 300",
        _setting("SlurmdTimeout", lambda c: not 0 < c.number("SlurmdTimeout", 300) <= 300),
    ),
    Trap(
        "kill-wait", Severity.WARNING,
        "ranks that hang in the driver cost every restart that time",
        "slurm.conf: KillWait=30, or as long as a last checkpoint takes",
        _setting("KillWait", lambda c: c.number("KillWait", 30) > 120),
    ),
    Trap(
        "kill-on-bad-exit", Severity.WARNING,
        "without it, the other ranks of a step without a supervisor hang when one has died",
        "slurm.conf: KillOnBadExit=1",
        _setting("KillOnBadExit", lambda c: c.number("KillOnBadExit", 0) == 0),
    ),
    Trap(
        "unkillable-steps", Severity.WARNING,
        'healthy nodes are drained with "Kill task failed" when many jobs end at once',
        "slurm.conf: UnkillableStepTimeout=180, five times MessageTimeout at least",
        _setting("UnkillableStepTimeout", _waits_too_short),
    ),
    Trap(
        "requeue-exit", Severity.WARNING,
        "Slurm requeues jobs with these exit codes without any limit, beside our budget",
        "slurm.conf: RequeueExit= (empty)",
        _setting("RequeueExit", lambda c: c.is_set("RequeueExit")),
    ),
    Trap(
        "job-file-append", Severity.WARNING,
        "a requeue truncates the log of a job, and why it was requeued with it",
        "slurm.conf: JobFileAppend=1; or sbatch --open-mode=append",
        _setting("JobFileAppend", lambda c: c.number("JobFileAppend", 0) == 0),
    ),
    Trap(
        "private-nodes", Severity.ERROR,
        "the supervisor runs as the owner of a job, and cannot see the states of its nodes",
        "slurm.conf: PrivateData without nodes",
        _setting("PrivateData", _hides_nodes),
    ),
    Trap(
        "gpus-missing", Severity.ERROR,
        "Slurm starts no job there, as they have fewer GPUs than slurm.conf says",
        "repair them: scontrol update node=N state=fail reason=Action:Replace",
        _named("INVALID_REG", invalid_nodes),
    ),
    Trap(
        "reboot-program", Severity.ERROR,
        "the provider slurm-reboot lets Slurm reboot nodes with it",
        "slurm.conf: RebootProgram=/sbin/reboot",
        _setting("RebootProgram",
                 lambda c: c.reboot == "slurm-reboot" and not c.is_set("RebootProgram")),
    ),
    Trap(
        "power-saving", Severity.ERROR,
        "the provider slurm-power replaces nodes with ResumeProgram and SuspendProgram, and"
        " SuspendTime must be a number of seconds",
        "slurm.conf: ResumeProgram=..., SuspendProgram=..., SuspendTime=3600",
        _setting("SuspendTime", _power_saving),
    ),
    Trap(
        "fixed-addresses", Severity.WARNING,
        "srun dials the address in slurm.conf; a replacement with another one cannot be reached",
        "slurm.conf: NodeAddr=DNS name, or State=CLOUD",
        _named("NodeAddr is a number", fixed_addresses),
    ),
    Trap(
        "job-expansion", Severity.NOTE,
        "mode=resize, for jobs without GRES, requeues them instead of exchanging their nodes",
        "slurm.conf: SchedulerParameters=...,permit_job_expansion",
        _setting("SchedulerParameters",
                 lambda c: "permit_job_expansion" not in c.words("SchedulerParameters")),
    ),
    Trap(
        "cred-expire", Severity.NOTE,
        "a job that Slurm requeues by itself, as its batch host died, waits that long, unless the"
        " controller is there",
        "slurm.conf: AuthInfo=...,cred_expire=30",
        _setting("AuthInfo", _cred_expire),
    ),
    Trap(
        "no-spares", Severity.NOTE,
        "a job that loses a node waits for its repair, or for another job to end",
        "controller.toml: [slurm.spares] with a number for each partition",
        _when("no spare pool", lambda c: not any(one.startswith("HOT_SPARE") for one in
                                                 c.reservations)),
    ),
)  # fmt: skip
"""Every trap that is known."""
