"""Doctor rules on the configuration of a Slurm cluster: what makes auto-resume fail. Pure."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from holdfast.adapters.slurm.install.cluster_facts import ClusterFacts
from holdfast.adapters.slurm.install.doctor_checks import (
    RETRIES,
    closed_supervisor,
    does_not_load,
    fixed_addresses,
    invalid_nodes,
    lacks_expedited_requeue,
    lacks_plugin,
    missing_agents,
    other_retries,
    problem,
    silent_agents,
    skewed_clocks,
)
from holdfast.adapters.slurm.nodes.reservations import NEXT, SPARE
from holdfast.decisions.doctor import Diagnostic, RuleSeverity, Violation, diagnose
from holdfast.kit.units import format_duration

_NUMBER: Final = re.compile(r"\d+")
_AT_ALLOCATION: Final = frozenset(("alloc", "contain", "nohold", "runinjob", "x11"))
"""PrologFlags that run the Prolog when nodes are allocated; all but the first imply it."""

_SHORTEST_BOOT_S: Final = 600
"""Seconds: instances with many accelerators boot for 10 to 15 minutes."""

_SHOWN: Final = 5
"""Names in a diagnostic; there may be thousands."""

Find = Callable[[ClusterFacts], Iterator[str]]


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """One row of the table of rules on a cluster."""

    name: str
    severity: RuleSeverity
    why: str
    """Why auto-resume would fail or be slow."""

    remedy: str
    """The line to change, or what else to do."""

    find: Find
    """Yields what violates the rule."""

    def check(self, cluster: ClusterFacts) -> Iterator[Violation]:
        """Yield each violation of the rule by a cluster."""
        for found in self.find(cluster):
            yield Violation(severity=self.severity, why=self.why, remedy=self.remedy, found=found)


def diagnose_cluster(cluster: ClusterFacts) -> list[Diagnostic]:
    """Return the diagnostics of a cluster, the worst first.

    While slurmctld does not answer, only slurmctld and munge can be checked.
    """
    return diagnose(RULES[:2] if cluster.problem else RULES, cluster)


def _setting(key: str, is_bad: Callable[[ClusterFacts], bool]) -> Find:
    """Find a setting with a bad value."""

    def find(cluster: ClusterFacts) -> Iterator[str]:
        if is_bad(cluster):
            yield f"{key}={cluster.settings.get(key, '(not set)')}"

    return find


def _when(found: str, is_so: Callable[[ClusterFacts], bool]) -> Find:
    def find(cluster: ClusterFacts) -> Iterator[str]:
        if is_so(cluster):
            yield found

    return find


def open_reports(cluster: ClusterFacts) -> Iterator[str]:
    """Directories where others may change reports."""
    if cluster.open_reports:
        yield cluster.open_reports


def _named(what: str, names: Callable[[ClusterFacts], Iterator[str]]) -> Find:
    """Find nodes by name; at most ``_SHOWN`` are listed."""

    def find(cluster: ClusterFacts) -> Iterator[str]:
        all_names = sorted(names(cluster))
        if all_names:
            more = len(all_names) - _SHOWN
            shown = ", ".join(all_names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
            yield f"{what}: {shown}"

    return find


def _prologs_hold(cluster: ClusterFacts) -> bool:
    has = cluster.is_set("Prolog")
    return has and "nohold_on_prolog_fail" not in cluster.items("SchedulerParameters")


def _prologs_at_launch(cluster: ClusterFacts) -> bool:
    flags = {word.strip().lower() for word in cluster.items("PrologFlags")}
    return cluster.is_set("Prolog") and not flags & _AT_ALLOCATION


def _cred_expire(cluster: ClusterFacts) -> bool:
    words = [word for word in cluster.items("AuthInfo") if word.startswith("cred_expire=")]
    return not words or int(_NUMBER.findall(words[-1])[0] if _NUMBER.search(words[-1]) else 0) > 30


def _hides_nodes(cluster: ClusterFacts) -> bool:
    return "nodes" in cluster.items("PrivateData")


def _waits_too_short(cluster: ClusterFacts) -> bool:
    return cluster.number("UnkillableStepTimeout", 60) < 5 * cluster.number("MessageTimeout", 10)


def _power_saving(cluster: ClusterFacts) -> bool:
    return cluster.replace == "slurm-power" and (
        not cluster.is_set("ResumeProgram")
        or not cluster.is_set("SuspendProgram")
        or _NUMBER.match(cluster.settings.get("SuspendTime", "")) is None
    )


def _resume_timeout(cluster: ClusterFacts) -> Iterator[str]:
    """Yield a ResumeTimeout that is shorter than a boot, or not below ``join_timeout``."""
    limit = cluster.join_timeout
    if cluster.replace != "slurm-power" or limit is None:
        return
    seconds = cluster.number("ResumeTimeout", 60)
    if seconds < _SHORTEST_BOOT_S or seconds >= limit.total_seconds():
        yield f"ResumeTimeout={seconds} with join_timeout={format_duration(limit)}"


RULES: Final = (
    ClusterRule(
        "slurmctld-down", RuleSeverity.ERROR,
        "neither nodes nor jobs can be read or changed",
        "systemctl restart slurmctld; SLURM_CONF must name the slurm.conf of the cluster",
        problem,
    ),
    ClusterRule(
        "munge", RuleSeverity.ERROR,
        "Slurm commands fail without munge, and when clocks differ by 5 minutes",
        "systemctl restart munge; use the same munge.key and synchronized clocks on all nodes",
        _when("a credential encoded here cannot be decoded here", lambda c: not c.has_munge),
    ),
    ClusterRule(
        "plugin-missing", RuleSeverity.ERROR,
        "srun, sbatch and salloc refuse --auto-resume; a Comment auto-resume=1 works without it",
        "holdfast slurm install", lacks_plugin,
    ),
    ClusterRule(
        "plugin-does-not-load", RuleSeverity.ERROR,
        "a plugin loads only in the Slurm version that it was compiled for",
        "install the headers of this Slurm, then: holdfast slurm install", does_not_load,
    ),
    ClusterRule(
        "plugin-required", RuleSeverity.WARNING,
        "if the plugin cannot be loaded, such as after an upgrade of Slurm, every job fails",
        "plugstack.conf: write optional instead of required",
        _when("the plugin is required", lambda c: c.plugin.split()[:1] == ["required"]),
    ),
    ClusterRule(
        "supervisor-missing", RuleSeverity.ERROR,
        "srun --auto-resume=1 runs without a supervisor: the modes step and swap do nothing",
        "plugstack.conf: supervisor=PATH of a holdfast program that exists on every node",
        _when("the program after supervisor= cannot run here", lambda c: not c.has_supervisor),
    ),
    ClusterRule(
        "supervisor-closed", RuleSeverity.ERROR,
        "the supervisor runs as the owner of a job, who cannot execute that program; srun"
        " --auto-resume=1 then runs without it",
        "chmod o+x that path, or install holdfast where every user can execute it, such as /opt,"
        " and write that path in plugstack.conf: supervisor=PATH", closed_supervisor,
    ),
    ClusterRule(
        "other-retries", RuleSeverity.WARNING,
        "supervisors do not read the controller's configuration: in the modes step, swap and resize"
        " a job without max-retry in its Comment gets a different number of restarts",
        "plugstack.conf: append --max-retries=N to supervisor=..., with N as in controller.toml",
        other_retries,
    ),
    ClusterRule(
        "controller-down", RuleSeverity.ERROR,
        "broken nodes are not set to FAIL, spares are not reserved, and jobs are not requeued",
        "systemctl enable --now holdfast-controller",
        _when("no controller runs with this state directory",
              lambda c: c.is_controlled is False),
    ),
    ClusterRule(
        "reports-writable", RuleSeverity.ERROR,
        "users who can write there can delete reports and hide faults; the controller refuses it",
        "chmod go-w, and chown to root or SlurmUser, the directory that is named",
        open_reports,
    ),
    ClusterRule(
        "agents-missing", RuleSeverity.ERROR,
        "faults of these nodes are not detected, and the nodes are never repaired",
        "on each node: holdfast slurm install --role compute; or make report_dir shared",
        _named("no report from", missing_agents),
    ),
    ClusterRule(
        "agents-silent", RuleSeverity.WARNING,
        "faults of these nodes are not detected until the agent reports again",
        "systemctl restart holdfast-agent on the node; report_dir must be mounted there",
        _named("the last report is old", silent_agents),
    ),
    ClusterRule(
        "job-requeue", RuleSeverity.ERROR,
        "Slurm requeues no job that was submitted without --requeue",
        "slurm.conf: JobRequeue=1",
        _setting("JobRequeue", lambda c: c.number("JobRequeue", 1) == 0),
    ),
    ClusterRule(
        "max-batch-requeue", RuleSeverity.WARNING,
        f"Slurm holds a job after this many requeues; Holdfast allows {RETRIES}",
        f"slurm.conf: MaxBatchRequeue={RETRIES + 1} or more",
        _setting("MaxBatchRequeue", lambda c: c.number("MaxBatchRequeue", 1000) <= RETRIES),
    ),
    ClusterRule(
        "prolog-holds-jobs", RuleSeverity.ERROR,
        "a failed Prolog leaves its job held (priority 0) until it is released",
        "slurm.conf: SchedulerParameters=...,nohold_on_prolog_fail",
        _setting("SchedulerParameters", _prologs_hold),
    ),
    ClusterRule(
        "prolog-at-launch", RuleSeverity.ERROR,
        "the Prolog runs when a step is launched: if its check fails, the job fails instead of"
        " starting on other nodes",
        "slurm.conf: PrologFlags=Alloc", _setting("PrologFlags", _prologs_at_launch),
    ),
    ClusterRule(
        "clocks", RuleSeverity.WARNING,
        "a requeued job starts 2 s ahead by the clock of slurmctld; on nodes whose clocks differ by"
        " more its credential is rejected, and Slurm ends the job",
        "run chrony or ntpd on these nodes",
        _named("clocks ahead of the clock of the shared directory", skewed_clocks),
    ),
    ClusterRule(
        "return-to-service", RuleSeverity.WARNING,
        "mode=swap needs 2: else Slurm removes a rebooted node from its job, or leaves it DOWN",
        "slurm.conf: ReturnToService=2",
        _setting("ReturnToService", lambda c: c.number("ReturnToService", 0) != 2),
    ),
    ClusterRule(
        "slurmd-timeout", RuleSeverity.WARNING,
        "a lost node becomes DOWN only after this time, and srun waits for it; 0 means never",
        "slurm.conf: SlurmdTimeout=60 to 300",
        _setting("SlurmdTimeout", lambda c: not 0 < c.number("SlurmdTimeout", 300) <= 300),
    ),
    ClusterRule(
        "kill-wait", RuleSeverity.WARNING,
        "each restart waits this long for ranks that hang in the driver",
        "slurm.conf: KillWait=30, or the time that a last checkpoint takes",
        _setting("KillWait", lambda c: c.number("KillWait", 30) > 120),
    ),
    ClusterRule(
        "kill-on-bad-exit", RuleSeverity.WARNING,
        "in steps without a supervisor, the other ranks hang when one rank has died",
        "slurm.conf: KillOnBadExit=1",
        _setting("KillOnBadExit", lambda c: c.number("KillOnBadExit", 0) == 0),
    ),
    ClusterRule(
        "unkillable-steps", RuleSeverity.WARNING,
        'healthy nodes are drained ("Kill task failed") when many jobs end at once',
        "slurm.conf: UnkillableStepTimeout=180, at least five times MessageTimeout",
        _setting("UnkillableStepTimeout", _waits_too_short),
    ),
    ClusterRule(
        "requeue-exit", RuleSeverity.WARNING,
        "Slurm requeues jobs with these exit codes without limit; max-retry does not apply",
        "slurm.conf: RequeueExit= (empty)",
        _setting("RequeueExit", lambda c: c.is_set("RequeueExit")),
    ),
    ClusterRule(
        "job-file-append", RuleSeverity.WARNING,
        "a requeue truncates the log of a job, which loses the reason for the requeue",
        "slurm.conf: JobFileAppend=1; or sbatch --open-mode=append",
        _setting("JobFileAppend", lambda c: c.number("JobFileAppend", 0) == 0),
    ),
    ClusterRule(
        "private-nodes", RuleSeverity.ERROR,
        "the supervisor runs as the owner of a job and cannot read the states of its nodes",
        "slurm.conf: PrivateData without nodes",
        _setting("PrivateData", _hides_nodes),
    ),
    ClusterRule(
        "gpus-missing", RuleSeverity.ERROR,
        "Slurm starts no job on these nodes: they have fewer GPUs than slurm.conf defines",
        "replace them: scontrol update node=N state=fail reason=Action:Replace",
        _named("INVALID_REG", invalid_nodes),
    ),
    ClusterRule(
        "reboot-program", RuleSeverity.ERROR,
        "the provider slurm-reboot reboots nodes with RebootProgram",
        "slurm.conf: RebootProgram=/sbin/reboot",
        _setting("RebootProgram",
                 lambda c: c.reboot == "slurm-reboot" and not c.is_set("RebootProgram")),
    ),
    ClusterRule(
        "power-saving", RuleSeverity.ERROR,
        "the provider slurm-power replaces nodes with ResumeProgram and SuspendProgram, and"
        " SuspendTime must be a number of seconds",
        "slurm.conf: ResumeProgram=..., SuspendProgram=..., SuspendTime=3600",
        _setting("SuspendTime", _power_saving),
    ),
    ClusterRule(
        "resume-timeout", RuleSeverity.WARNING,
        "Slurm marks a node DOWN that boots longer than ResumeTimeout; Holdfast orders it again;"
        " with join_timeout below ResumeTimeout, Holdfast orders it again while Slurm still waits",
        "slurm.conf: ResumeTimeout= the longest boot, at least 600, and below join_timeout of"
        " [nodes] in controller.toml",
        _resume_timeout,
    ),
    ClusterRule(
        "fixed-addresses", RuleSeverity.WARNING,
        "srun connects to the address in slurm.conf; a replacement with another one is unreachable",
        "slurm.conf: NodeAddr=DNS name, or State=CLOUD",
        _named("NodeAddr is an IP address", fixed_addresses),
    ),
    ClusterRule(
        "job-expansion", RuleSeverity.NOTE,
        "mode=resize requeues jobs without GRES instead of exchanging their nodes",
        "slurm.conf: SchedulerParameters=...,permit_job_expansion",
        _setting("SchedulerParameters",
                 lambda c: "permit_job_expansion" not in c.items("SchedulerParameters")),
    ),
    ClusterRule(
        "cred-expire", RuleSeverity.NOTE,
        "after the batch host died, Slurm requeues the job only after this time, unless the"
        " controller runs",
        "slurm.conf: AuthInfo=...,cred_expire=30",
        _setting("AuthInfo", _cred_expire),
    ),
    ClusterRule(
        "expedited-requeue", RuleSeverity.NOTE,
        "jobs without auto-resume wait in the queue after a fault of a node; from version 25.11 on,"
        " Slurm restarts those at once that were submitted with sbatch --requeue=expedite, if a"
        " node fails, or the Epilog of a job that exits with an error",
        "slurm.conf: SlurmctldParameters=...,enable_expedited_requeue, and Epilog=... with:"
        " holdfast check epilog",
        _setting("SlurmctldParameters", lacks_expedited_requeue),
    ),
    ClusterRule(
        "no-spares", RuleSeverity.NOTE,
        "a job that loses a node waits for the repair, or for another job to end",
        "controller.toml: [slurm.spares] with a number for each partition",
        _when("no spare pool", lambda c: not any(one.startswith((SPARE, NEXT)) for one in
                                                 c.reservations)),
    ),
)  # fmt: skip
"""All rules, in the order in which they are checked."""
