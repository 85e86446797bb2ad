"""What Slurm's commands say, read: pure."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.reasons import RESUME_TIMEOUT, ParsedReason, parse_reason

SHOW_NODES: Final = ("scontrol", "-o", "show", "node")
"""The same text in every version since 22.05."""

JOBS_FORMAT: Final = "%i|%T|%N"

_REASON: Final = re.compile(r" Reason=(.*?) \[([^\[\]]*@\d{4}-\d\d-\d\dT[\d:]+)\]")
_NAME: Final = "NodeName="
_ABSENT: Final = ("", "(null)", "N/A", "None", "Unknown")

CLOSED: Final = frozenset(("FAIL", "DRAIN", "DOWN", "INVALID_REG"))
"""States and flags in which Slurm places no jobs on a node."""

_IDLE: Final = frozenset(("IDLE",))
_KINDS: Final = frozenset(("CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"))
"""What a node is, whatever it does."""

_PLANS: Final = frozenset(("RESERVED", "PLANNED"))
"""A reservation has it, or the backfill scheduler means it for a job that waits."""

_DEAF: Final = frozenset(("NOT_RESPONDING", "UNKNOWN", "REBOOT_ISSUED", "FUTURE"))
_FALLING_ASLEEP: Final = frozenset(("POWER_DOWN", "POWERING_DOWN"))
_WAKING: Final = frozenset(("POWERED_DOWN", "POWER_UP", "POWERING_UP"))
_ASLEEP: Final = _FALLING_ASLEEP | _WAKING


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node as Slurm has it."""

    name: str
    state: frozenset[str]
    """The state and its flags, such as ``MIXED`` and ``FAIL``."""

    reason: ParsedReason
    """Parsed reason of the node."""

    reason_set: str = ""
    """Who set the reason, and when."""

    slurmd: str = ""
    """Names one start of its slurmd in one boot; another after every reboot."""

    instance_id: str = ""
    address: str = ""
    """Where slurmctld looks for its slurmd."""

    partition: str = ""
    """The first of those that it is in."""

    @property
    def is_closed(self) -> bool:
        """Whether it is kept from jobs by somebody's word or by Slurm's."""
        return bool(self.state & CLOSED)

    @property
    def closed_by(self) -> str:
        """Who keeps it from jobs, and why, for people to read; empty if it is open."""
        if not self.is_closed:
            return ""
        who = self.reason_set.partition("@")[0] or "Slurm"
        why = f": {self.reason.text}" if self.reason.text else ""
        return f"{who} set it to {'+'.join(sorted(self.state & CLOSED))} in Slurm{why}"

    @property
    def start_error(self) -> str:
        """Why Slurm has given up on its start, in Slurm's words; empty if it has not."""
        if self.has_heartbeat or RESUME_TIMEOUT not in self.reason.text:
            return ""
        return f"Slurm says: {RESUME_TIMEOUT}"

    @property
    def has_heartbeat(self) -> bool:
        """Whether its slurmd answers."""
        return not self.state & (_DEAF | _ASLEEP)

    @property
    def is_idle(self) -> bool:
        """Whether it is awake, without work, and nobody has plans for it."""
        return self.state - _KINDS == _IDLE

    @property
    def is_free(self) -> bool:
        """Whether it is without work, awake or asleep, whatever is planned for it."""
        return self.state - _KINDS - _PLANS - _WAKING == _IDLE

    @property
    def wakes(self) -> bool:
        """Whether Slurm's power saving has switched it off, and switches it on for a job."""
        return bool(self.state & _WAKING) and not self.state & _FALLING_ASLEEP

    @property
    def is_asleep(self) -> bool:
        """Whether Slurm's power saving has switched it off, or is about to switch it."""
        return bool(self.state & _ASLEEP)


@dataclass(frozen=True, slots=True)
class JobFacts:
    """One job that holds nodes."""

    id: str
    """As ``scontrol`` takes it: ``7``, or ``7_2`` for a task of an array."""

    state: str
    nodes: tuple[str, ...]


def parse_nodes(text: str) -> dict[str, NodeFacts]:
    """The nodes in the answer of ``SHOW_NODES``, by name.

    Raises:
        ValueError: it is no such answer.

    """
    nodes = (_node(line) for line in text.splitlines() if line)
    return {node.name: node for node in nodes}


def parse_jobs(text: str) -> list[JobFacts]:
    """The jobs in the answer of ``squeue -h -o JOBS_FORMAT``.

    Raises:
        ValueError: it is no such answer.

    """
    jobs = []
    for line in text.splitlines():
        parts = line.strip().split("|")
        if len(parts) != 3:
            raise ValueError(f"squeue said {line[:100]!r}")
        leader = parts[0].partition("+")[0]  # a heterogeneous job is one
        jobs.append(JobFacts(leader, parts[1], expand(parts[2])))
    return jobs


def _node(line: str) -> NodeFacts:
    if not line.startswith(_NAME):
        raise ValueError(f"scontrol said {line[:100]!r}")
    state = _value(line, " State=")
    if not state:
        raise ValueError(f"scontrol tells no state of {line[:100]!r}")
    found = _REASON.search(line) if " Reason=" in line else None
    reason, reason_set = (found[1], found[2]) if found is not None else ("", "")
    return NodeFacts(
        line[len(_NAME) :].split(None, 1)[0],
        _flags(state),
        _word(reason),
        reason_set,
        f"{_value(line, ' BootTime=')}/{_value(line, ' SlurmdStartTime=')}",
        _value(line, " InstanceId="),
        _value(line, " NodeAddr="),
        _value(line, " Partitions=").partition(",")[0],
    )


def _value(line: str, key: str) -> str:
    at = line.find(key)
    if at < 0:
        return ""
    at += len(key)
    end = line.find(" ", at)
    value = line[at:] if end < 0 else line[at:end]
    return "" if value in _ABSENT else value


@lru_cache(maxsize=1024)  # many nodes, and few states and reasons
def _flags(state: str) -> frozenset[str]:
    return frozenset(state.split("+"))


@lru_cache(maxsize=1024)
def _word(reason: str) -> ParsedReason:
    return parse_reason(reason)
