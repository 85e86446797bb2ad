"""Processes killed by the kernel because memory was exhausted.

Each is reported by one line, ``Out of memory: Killed process 4242 (python) ..`` if the host was out
of memory, and ``Memory cgroup out of memory: ..`` if a job had reached its own limit. The many
other lines of the same event repeat it. The node needs no repair: most often the job uses more
memory than there is, and would again.
"""

from typing import Final

from holdfast.detectors.contract import Detector, Profile
from holdfast.detectors.log_rules import LogRule, log_detector
from holdfast.model.health import Severity
from holdfast.model.names import Condition, Reason

FAMILY: Final = "oom"

_KERNEL: Final = "Linux, mm/oom_kill.c; node-problem-detector, kernel-monitor.json (OOMKilling)"
_VICTIM: Final = (
    r"(?:Kill|Killed) process [0-9]{1,10} \((?P<device>[^\n]{1,64}?)\)"
    r"(?=,? (?:UID |total-vm:|score )|$)"
)

RULES: Final = (
    LogRule(
        keyword="Memory cgroup out of memory",
        pattern=rf"Memory cgroup out of memory: {_VICTIM}",
        example=(
            "Memory cgroup out of memory: Killed process 3504804 (kubectl) total-vm:1262748kB, "
            "anon-rss:51200kB, file-rss:0kB, shmem-rss:0kB, UID:0 pgtables:288kB oom_score_adj:999"
        ),
        condition=Condition.SOFTWARE,
        reason=Reason.OOM_KILLING,
        severity=Severity.INFO,
        source=_KERNEL,
    ),
    LogRule(
        keyword="Out of memory",
        pattern=rf"Out of memory(?: \(oom_kill_allocating_task\))?: {_VICTIM}",
        example=(
            "Out of memory: Killed process 9876 (python) total-vm:270532kB, anon-rss:104520kB, "
            "file-rss:0kB, shmem-rss:0kB, UID:1000 pgtables:288kB oom_score_adj:0"
        ),
        condition=Condition.HOST_MEMORY,
        reason=Reason.OOM_KILLING,
        severity=Severity.WARNING,
        source=_KERNEL,
    ),
    LogRule(
        keyword="Killed process",
        pattern=_VICTIM,
        example="Killed process 9876 (apache2) total-vm:270532kB, anon-rss:104520kB, file-rss:0kB",
        condition=Condition.SOFTWARE,
        reason=Reason.OOM_KILLING,
        severity=Severity.INFO,
        source=f"{_KERNEL}; before 5.0 the line does not name the exhausted memory",
    ),
)


def build(_: Profile) -> Detector:
    """Return the detector; all profiles agree on it."""
    return log_detector("host-memory", FAMILY, RULES)
