"""Parses Slurm's output about nodes and the jobs on them. Pure."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.reasons import (
    RESUME_TIMEOUT,
    Author,
    ParsedReason,
    parse_reason,
)
from holdfast.adapters.slurm.commands.records import records

SHOW_NODES: Final = ("scontrol", "-o", "show", "node")
"""Command whose output has the same format in every version since 22.05."""

JOBS_FORMAT: Final = "%i|%T|%N"

_REASON: Final = re.compile(r" Reason=(.*?) \[([^\[\]]*@\d{4}-\d\d-\d\dT[\d:]+)\]")
_CONFIGURED_REASON: Final = re.compile(r" Reason=(.*?)(?= [A-Z]\w*=|$)")
"""Reason of ``slurm.conf``, which nobody has set at any time."""

_FREE_TEXT: Final = re.compile(r" (?:Comment|Extra)=")
_NAME: Final = "NodeName="
_ABSENT: Final = ("", "(null)", "N/A", "None", "Unknown")

CLOSED: Final = frozenset(("FAIL", "DRAIN", "DOWN", "INVALID_REG"))
"""States and flags in which Slurm places no jobs on a node."""

_IDLE: Final = frozenset(("IDLE",))
_KINDS: Final = frozenset(("CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"))
"""State flags for the type of a node, independent of its state."""

_PLANS: Final = frozenset(("RESERVED", "PLANNED"))
"""State flags of a node in a reservation, or planned by the backfill scheduler for a pending
job."""

_NOT_RESPONDING: Final = frozenset(("NOT_RESPONDING", "UNKNOWN", "REBOOT_ISSUED", "FUTURE"))
_FALLING_ASLEEP: Final = frozenset(("POWER_DOWN", "POWERING_DOWN"))
_WAKING: Final = frozenset(("POWERED_DOWN", "POWER_UP", "POWERING_UP"))
_ASLEEP: Final = _FALLING_ASLEEP | _WAKING


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """State of one node in Slurm."""

    name: str
    state: frozenset[str]
    """State and flags, such as ``MIXED`` and ``FAIL``."""

    reason: ParsedReason
    """Parsed reason of the node."""

    reason_set: str = ""
    """User who set the reason, and time."""

    slurmd: str = ""
    """Identifies one start of slurmd in one boot; changes with every reboot."""

    instance_id: str = ""
    address: str = ""
    """Address at which slurmctld reaches its slurmd."""

    partition: str = ""
    """First of its partitions."""

    @property
    def is_closed(self) -> bool:
        """Whether it is closed to jobs, by a person or program, or by Slurm."""
        return bool(self.state & CLOSED)

    @property
    def is_taken(self) -> bool:
        """Whether a person or a program other than Slurm and Holdfast has closed it."""
        return self.is_closed and self.reason.author is Author.OTHER

    @property
    def keeps_reason(self) -> bool:
        """Whether its reason must not be replaced: it is taken, or a request not yet carried out.

        slurmctld's own reasons for which Holdfast reboots a node are requests, too.
        """
        return self.is_taken or (self.is_closed and self.reason.author is Author.REQUEST)

    @property
    def closed_by(self) -> str:
        """Return who closed it to jobs, and why, for messages; empty if it is open."""
        if not self.is_closed:
            return ""
        unnamed = "slurm.conf" if self.reason.text else "Slurm"
        who = self.reason_set.partition("@")[0] or unnamed
        why = f": {self.reason.text}" if self.reason.text else ""
        return f"{who} set it to {'+'.join(sorted(self.state & CLOSED))} in Slurm{why}"

    @property
    def start_error(self) -> str:
        """Return Slurm's reason if it failed to power up; empty otherwise."""
        if self.has_heartbeat or RESUME_TIMEOUT not in self.reason.text:
            return ""
        return f"Slurm reports: {RESUME_TIMEOUT}"

    @property
    def has_heartbeat(self) -> bool:
        """Whether its slurmd responds."""
        return not self.state & (_NOT_RESPONDING | _ASLEEP)

    @property
    def is_idle(self) -> bool:
        """Whether it is powered up, idle, and not reserved or planned for a job."""
        return self.state - _KINDS == _IDLE

    @property
    def is_free(self) -> bool:
        """Whether it is idle, powered up or down, reserved or not."""
        return self.state - _KINDS - _PLANS - _WAKING == _IDLE

    @property
    def wakes(self) -> bool:
        """Whether Slurm's power saving has powered it down, and powers it up for a job."""
        return bool(self.state & _WAKING) and not self.state & _FALLING_ASLEEP

    @property
    def is_asleep(self) -> bool:
        """Whether Slurm's power saving has powered it down, or is about to change its power."""
        return bool(self.state & _ASLEEP)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job that holds nodes."""

    id: str
    """ID for ``scontrol``: ``7``, or ``7_2`` for an array task."""

    state: str
    nodes: tuple[str, ...]


def parse_nodes(text: str) -> dict[str, NodeFacts]:
    """Return the nodes in the output of ``SHOW_NODES``, by name.

    Raises:
        ValueError: the output is not as expected.

    """
    nodes = (_node(line) for line in records(text, _NAME))
    return {node.name: node for node in nodes}


def parse_jobs(text: str) -> list[JobFacts]:
    """Return the jobs in the output of ``squeue -h -o JOBS_FORMAT``.

    Raises:
        ValueError: the output is not as expected.

    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 3:
            raise ValueError(f"unexpected output of squeue: {line[:100]!r}")
        leader = parts[0].partition("+")[0]  # all components of a heterogeneous job are one job
        jobs.append(JobFacts(leader, parts[1], expand(parts[2])))
    return jobs


def _node(line: str) -> NodeFacts:
    state = _value(line, " State=")
    if not state:
        raise ValueError(f"scontrol printed no state of {line[:100]!r}")
    reason, reason_set = _reason_text(line) if " Reason=" in line else ("", "")
    return NodeFacts(
        line[len(_NAME) :].split(None, 1)[0],
        _flags(state),
        _reason(reason),
        reason_set,
        f"{_value(line, ' BootTime=')}/{_value(line, ' SlurmdStartTime=')}",
        _value(line, " InstanceId="),
        _value(line, " NodeAddr="),
        _value(line, " Partitions=").partition(",")[0],
    )


def _reason_text(line: str) -> tuple[str, str]:
    """Return the reason of a node, and who set it when; the latter is empty for ``slurm.conf``."""
    found = _REASON.search(line)
    if found is not None:
        return found[1], found[2]
    found = _CONFIGURED_REASON.search(_FREE_TEXT.split(line, maxsplit=1)[0])
    return ("" if found is None else found[1]), ""


def _value(line: str, key: str) -> str:
    at = line.find(key)
    if at < 0:
        return ""
    at += len(key)
    end = line.find(" ", at)
    value = line[at:] if end < 0 else line[at:end]
    return "" if value in _ABSENT else value


_reason = lru_cache(maxsize=1024)(parse_reason)


@lru_cache(maxsize=1024)  # many nodes share few states and reasons
def _flags(state: str) -> frozenset[str]:
    return frozenset(state.split("+"))
