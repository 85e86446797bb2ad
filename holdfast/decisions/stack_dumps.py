"""Reads what ``py-spy dump`` prints for the processes of a container. Pure.

Before each dump, ``COMMAND`` prints a line about the process::

    == pid=12 ppid=1 state=S wchan=futex_wait_queue rank=3 launched job=77 node=gpu-1

``rank`` is missing outside of ranks, ``job`` and ``node`` outside of Slurm; ``launched`` marks the
processes that torchrun started, which have ``local`` and ``slots``, too: the rank on its node and
the number of ranks there. ``cuda`` is CUDA_VISIBLE_DEVICES. The last line of the dumps is
``== end``, unless the output was cut off. The state of the node follows::

    == kernel 36000.12
    4,1042,35990000000,-;NVRM: Xid (PCI:0000:b9:00): 79, GPU has fallen off the bus.
    == gpus
    0, GPU-8a1c, 00000000:B9:00.0, 512, 81559, 100

These are the uptime in seconds, the last warnings in ``/dev/kmsg``, and what nvidia-smi reads
through NVML. ``== kernel unread`` and ``== gpus unread`` stand for what could not be read.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from holdfast.decisions.flight_recorder import RankFindings
from holdfast.decisions.node_dumps import devices_of, kernel_log_of, split_state
from holdfast.decisions.rank_accelerators import QUERY, Accelerator, device_of
from holdfast.decisions.rank_snapshots import Frame, Helper, RankSnapshot, ordered
from holdfast.kit.masking import masked_command, masked_text

COMMAND: Final = (
    "sh",
    "-c",
    "e=0; g=; if command -v nvidia-smi >/dev/null && t=$(mktemp); then g=late; "
    f"(nvidia-smi --query-gpu={QUERY} --format=csv,noheader,nounits >$t; echo done >>$t) "
    ">/dev/null 2>&1 & fi; "
    "dump() { py-spy dump --pid ${p#/proc/} --full-filenames --nonblocking; }; "
    "for p in /proc/[0-9]*; do case $(readlink $p/exe) in */python*) "
    "v=$(tr '\\0' '\\n' <$p/environ | "
    "sed -n 's/^RANK=/rank=/p;s/^TORCHELASTIC_RUN_ID=.*/launched/p;"
    "s/^LOCAL_RANK=/local=/p;s/^LOCAL_WORLD_SIZE=/slots=/p;"
    "s/^CUDA_VISIBLE_DEVICES=/cuda=/p;"
    "s/^SLURM_JOB_ID=/job=/p;s/^SLURMD_NODENAME=/node=/p'); "
    "echo == pid=${p#/proc/} $(sed 's/.*) \\(.\\) \\([0-9]*\\) .*/ppid=\\2 state=\\1/' $p/stat) "
    "wchan=$(cat $p/wchan) $v; "
    "dump || dump || dump || { f=$?; [ -e $p/exe ] && e=$f; };; esac; done; "
    "echo == end; "
    "if (: </dev/kmsg) 2>/dev/null; then echo == kernel $(cut -d' ' -f1 /proc/uptime); "
    "timeout 2 dd if=/dev/kmsg bs=16k iflag=nonblock 2>/dev/null | "
    "grep -E '^([0-4]|8|9|1[0-2]),|^5,.*not responding' | tail -n 20 | cut -c1-400; "
    "else echo == kernel unread; fi; "
    "if [ $g ]; then for i in 1 2 3 4; do grep -q ^done $t && g= && break; sleep 1; done; "
    "echo == gpus ${g:+unread}; grep -v done $t | head -n 64; rm -f $t; fi; exit $e",
)
"""Dumps every Python process of a container: the first is often only a launcher.

A process that runs is not paused, so a dump may fail; it is repeated twice. The exit code is that
of a dump that failed, such as 127 where there is no py-spy, unless the process has ended.
nvidia-smi runs meanwhile, and is not awaited for long, because it never ends in a wedged driver.
"""

_PROCESS: Final = re.compile(
    r"^== pid=(\d{1,9}) ppid=(\d{1,9}) state=(\w) wchan=(\w{0,100})(.{0,2000})$"
)
_RANK: Final = re.compile(r" rank=(\d{1,6})(?= |$)")
_LOCAL: Final = re.compile(r" local=(\d{1,4})(?= |$)")
_SLOTS: Final = re.compile(r" slots=(\d{1,3})(?= |$)")
_CUDA: Final = re.compile(r" cuda=(\S{0,1000})(?= |$)")
_JOB: Final = re.compile(r" job=(\S{1,30})(?= |$)")
_NODE: Final = re.compile(r" node=(\S{1,200})(?= |$)")
_THREAD: Final = re.compile(
    r"^Thread (?:(\d{1,10})|(?:0x)?[0-9A-Fa-f]{1,16}) \([^)]{0,40}\)(?:: \"(.{0,100})\")?"
)
_FRAME: Final = re.compile(r"^ {4}(.{1,200}) \((.{1,500}?)(?::(\d{1,9}))?\)$")
_COMMAND_LINE: Final = re.compile(
    r"^(Process \d{1,9}: )(.*?)(?=^Python v\d|^== (?:pid=|end$)|^Thread |\Z)",
    re.MULTILINE | re.DOTALL,
)
"""Command line of a process, which may contain newlines; the version of Python follows it."""

_END: Final = "== end"
_END_LINES: Final = 3
"""Lines at the end of the output in which the last one of the command is searched: errors follow
it."""

_FRAMES_LIMIT: Final = 100
_THREADS_LIMIT: Final = 64
_PROCESSES_LIMIT: Final = 4096
_DEPTH: Final = 3
"""Generations of processes below a rank: a worker of a DataLoader may have started a server."""


@dataclass(slots=True)
class _Thread:
    id: int
    name: str
    frames: list[Frame] = field(default_factory=list)


@dataclass(slots=True)
class _Dump:
    pid: int
    parent: int
    state: str
    wait_channel: str
    rank: int | None
    is_launched: bool
    local_ranks: range
    """Ranks of its node; empty if unknown."""

    job: str
    node: str
    local_rank: int | None
    visible: str | None
    """Its CUDA_VISIBLE_DEVICES; None if it is not set."""

    threads: list[_Thread] = field(default_factory=list)

    @property
    def main(self) -> _Thread | None:
        named = (one for one in self.threads if one.name == "MainThread")
        return next(named, self.threads[0] if self.threads else None)

    @property
    def frames(self) -> tuple[Frame, ...]:
        return tuple(self.main.frames) if self.main is not None else ()


def findings_of(text: str, node: str, now: datetime, job: str = "") -> RankFindings:
    """Return what the ranks of a container do, with accelerators and the kernel log of the node.

    Args:
        text: output of ``COMMAND``.
        node: name of the node.
        now: time at which it was printed.
        job: as for ``snapshots_of``.

    """
    seen = snapshots_of(text, node, job)
    state = split_state(text)[1]
    return RankFindings(snapshots=seen, kernel=(kernel_log_of(state, node, now),) if seen else ())


def snapshots_of(text: str, node: str, job: str = "") -> tuple[RankSnapshot, ...]:
    """Return a snapshot of each rank of a container, in rank order, ended ones included.

    A rank is the outermost process with its number; what torchrun started comes first. Workers of a
    DataLoader inherit the number.

    Args:
        text: output of ``COMMAND``; other lines are ignored.
        node: name of the node.
        job: ID of a job of Slurm, whose processes on this node are the only ones to count; empty
            for all processes.

    """
    text, state = split_state(text)
    devices = devices_of(state)
    dumps = [one for one in _dumps(text) if not job or (one.job, one.node) == (job, node)]
    chosen: dict[int, _Dump] = {}
    for launched in (True, False):
        for one in dumps:
            if one.rank is not None and one.is_launched is launched:
                _choose(chosen, one, {each.pid: each for each in dumps})
    seen = [
        RankSnapshot(
            rank=rank,
            node=node,
            pid=one.pid,
            state=one.state,
            wait_channel=one.wait_channel,
            frames=one.frames,
            note="" if one.frames else "no stack",
            helpers=_helpers(one, dumps),
            accelerator=_accelerator(one, devices),
        )
        for rank, one in chosen.items()
    ]
    if _END in text.splitlines()[-_END_LINES:]:
        started = [one for one in chosen.values() if one.is_launched]
        ended = {rank for one in started for rank in one.local_ranks} - chosen.keys()
        seen += [RankSnapshot(rank=rank, node=node, pid=None, note="no process") for rank in ended]
    return tuple(sorted(seen, key=lambda one: one.rank))


def masked_dump(text: str) -> str:
    """Return the output of ``COMMAND`` with secrets masked, such as those in command lines."""
    return masked_text(_COMMAND_LINE.sub(lambda one: f"{one[1]}{masked_command(one[2])}\n", text))


def _local_ranks(text: str) -> range:
    """Return the ranks of a node by the environment of one of them; empty if unknown."""
    rank, local, slots = (pattern.search(text) for pattern in (_RANK, _LOCAL, _SLOTS))
    if rank is None or local is None or slots is None:
        return range(0)
    first = int(rank[1]) - int(local[1])
    return range(first, first + int(slots[1])) if first >= 0 else range(0)


def _choose(chosen: dict[int, _Dump], one: _Dump, by_pid: dict[int, _Dump]) -> None:
    assert one.rank is not None  # noqa: S101 - the caller has excluded it
    parent = by_pid.get(one.parent)
    is_inner = (
        parent is not None and parent.rank == one.rank and parent.is_launched is one.is_launched
    )
    if not is_inner:
        chosen.setdefault(one.rank, one)


def _dumps(text: str) -> Iterator[_Dump]:
    """Yield each process with the stacks of its threads."""
    current: _Dump | None = None
    count = 0
    for line in text.splitlines():
        found = _PROCESS.match(line)
        if found is not None:
            if current is not None:
                yield current
            count += 1
            if count > _PROCESSES_LIMIT:
                return
            rank = _RANK.search(found[5])
            current = _Dump(
                pid=int(found[1]),
                parent=int(found[2]),
                state=found[3],
                wait_channel="" if found[4] == "0" else found[4],
                rank=int(rank[1]) if rank is not None else None,
                is_launched=" launched" in found[5],
                local_ranks=_local_ranks(found[5]),
                job=_value(_JOB, found[5]),
                node=_value(_NODE, found[5]),
                local_rank=int(local[1]) if (local := _LOCAL.search(found[5])) else None,
                visible=cuda[1] if (cuda := _CUDA.search(found[5])) else None,
            )
        elif current is not None:
            _add_line(current, line)
    if current is not None:
        yield current


def _add_line(dump: _Dump, line: str) -> None:
    """Add a line of a dump: a thread, or a frame of the thread before it."""
    started = _THREAD.match(line)
    if started is not None and len(dump.threads) < _THREADS_LIMIT:
        dump.threads.append(_Thread(int(started[1] or 0), started[2] or ""))
        return
    frame = _FRAME.match(line)
    if frame is None or not line.isprintable() or not dump.threads:
        return
    frames = dump.threads[-1].frames
    if started is None and len(frames) < _FRAMES_LIMIT:
        frames.append(Frame(function=frame[1], file=frame[2], line=int(frame[3] or 0)))


def _helpers(rank: _Dump, dumps: Sequence[_Dump]) -> tuple[Helper, ...]:
    """Return the other threads of a rank, and the processes below it."""
    threads = [
        Helper(id=one.id, name=one.name, frames=tuple(one.frames))
        for one in rank.threads
        if one is not rank.main
    ]
    below = {rank.pid}
    for _ in range(_DEPTH):
        below |= {one.pid for one in dumps if one.parent in below}
    processes = [
        Helper(
            id=one.pid,
            is_process=True,
            state=one.state,
            wait_channel=one.wait_channel,
            frames=one.frames,
        )
        for one in dumps
        if one.pid in below and one is not rank
    ]
    return ordered([*threads, *processes])


def _accelerator(rank: _Dump, devices: Sequence[Accelerator]) -> Accelerator | None:
    if rank.local_rank is None:
        return None
    return device_of(devices, rank.visible, rank.local_rank)


def _value(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1] if found is not None else ""
