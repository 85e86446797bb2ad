"""The agent beside node-problem-detector: the same log, the same rules, at the same time."""

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench import peer
from bench.disturbed_run import percentile
from bench.figure import Figure
from bench.peer import Watcher

LINES = 100
QUICK_LINES = 20
STORM_S = 60
QUICK_STORM_S = 10
STORM_RATE = 5000
FLOOD_LINES = 200_000
MATCHING = 50  # one line in so many
FLOOD_S = 20
TIMEOUT_S = 15
_MS = 1000


@dataclass(frozen=True)
class Flood:
    """How a watcher did when all lines came at once, in the time that it had."""

    lines: int
    wall_s: float
    cpu_s: float

    @property
    def wall_ms_per_1000(self) -> float:
        """Milliseconds for 1,000 lines."""
        return self.wall_s * _MS * 1000 / max(self.lines, 1)

    @property
    def cpu_ms_per_1000(self) -> float:
        """Milliseconds of CPU for 1,000 lines."""
        return self.cpu_s * _MS * 1000 / max(self.lines, 1)

    def __str__(self) -> str:
        return f"{self.lines / self.wall_s:,.0f} lines/s, {self.lines / self.cpu_s:,.0f} per CPU-s"


def run(*, quick: bool = False) -> list[Figure]:
    """Append lines one by one, then in a storm, then all at once; see who finds them and when."""
    binary = peer.build()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        log = folder / "messages"
        log.touch()
        watchers = {"agent": stack.enter_context(peer.agent(folder, log))}
        if binary is not None:
            watchers["peer"] = stack.enter_context(peer.peer(folder, log, binary))
        for number in range(QUICK_LINES if quick else LINES):
            _append_and_wait(log, number, list(watchers.values()))
        for watcher in watchers.values():
            watcher.watch_memory()
        quiet = {name: watcher.peak_mib for name, watcher in watchers.items()}
        counts = _counts(folder / "run" / "report.json", watchers)
        lost = _storm(log, watchers, counts, QUICK_STORM_S if quick else STORM_S)
        floods = _flood(log, watchers, counts)
    return _figures(watchers, quiet, lost, floods)


def _figures(
    watchers: dict[str, Watcher],
    quiet: dict[str, float],
    lost: dict[str, int],
    floods: dict[str, Flood],
) -> list[Figure]:
    agent, flood = watchers["agent"], floods["agent"]
    figures = [
        Figure(
            name="syslog line to counted problem, p99",
            value=percentile(agent.latencies_ms, 0.99), unit="ms", goal=100,
        ),
        Figure(
            name="resident memory beside the peer's",
            value=quiet["agent"], unit="MiB", goal=quiet.get("peer", peer.MEMORY_MIB),
        ),
        Figure(name="matching lines lost in a storm", value=lost["agent"], unit="", goal=0),
        Figure(
            name="resident memory after storm and flood",
            value=agent.peak_mib, unit="MiB", goal=quiet["agent"] + 5,
        ),
    ]  # fmt: skip
    print(f"the agent: {flood}", file=sys.stderr)
    if "peer" not in watchers:
        return figures
    peer_watcher, peer_flood = watchers["peer"], floods["peer"]
    print(
        f"node-problem-detector {peer.VERSION} with {len(peer.rules())} of the agent's rules, on "
        f"the same lines: p99 {percentile(peer_watcher.latencies_ms, 0.99):.0f} ms, "
        f"{quiet['peer']:.1f} MiB, after storm and flood {peer_watcher.peak_mib:.1f} MiB, "
        f"{lost['peer']} matching lines not counted {TIMEOUT_S} s after the storm, {peer_flood}",
        file=sys.stderr,
    )
    return [
        *figures,
        Figure(
            name="time per 1,000 lines of a flood",
            value=flood.wall_ms_per_1000, unit="ms", goal=peer_flood.wall_ms_per_1000,
        ),
        Figure(
            name="CPU per 1,000 lines of a flood",
            value=flood.cpu_ms_per_1000, unit="ms", goal=peer_flood.cpu_ms_per_1000,
        ),
    ]  # fmt: skip


def _line(device: int, code: int = 74) -> str:
    now = datetime.now(UTC).astimezone()
    address = f"PCI:{device // 32:04x}:{device % 32:02x}:00"
    return f"{now:%b %e %H:%M:%S} host kernel: NVRM: Xid ({address}): {code}, pid=1, name=x, text\n"


def _append_and_wait(log: Path, number: int, watchers: list[Watcher]) -> None:
    """Append one line about another GPU, and note how long each watcher takes to count it."""
    goal = {id(watcher): watcher.count() + 1 for watcher in watchers}
    start = time.perf_counter()
    with log.open("a", encoding="utf-8") as file:
        file.write(_line(number))

    def wait(watcher: Watcher) -> None:
        while watcher.count() < goal[id(watcher)]:
            assert time.perf_counter() - start < peer.TIMEOUT_S, "a line was never counted"
            time.sleep(0.002)
        watcher.latencies_ms.append((time.perf_counter() - start) * 1000)

    threads = [threading.Thread(target=wait, args=(watcher,)) for watcher in watchers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _counts(report: Path, watchers: dict[str, Watcher]) -> dict[str, Callable[[], int]]:
    """How many matching lines each has counted: of a fault that holds, the agent its sightings."""

    def sightings() -> int:
        faults = json.loads(report.read_text(encoding="utf-8"))["faults"]
        return sum(fault["count"] + fault["followers"] for fault in faults)

    counts: dict[str, Callable[[], int]] = {"agent": sightings}
    if "peer" in watchers:
        counts["peer"] = watchers["peer"].count
    return counts


def _batch(size: int, device: int) -> str:
    batch = [f"{datetime.now().astimezone():%b %e %H:%M:%S} host kernel: usb 1-1: new device\n"]
    batch *= size
    batch[::MATCHING] = [_line(device)] * (size // MATCHING)
    return "".join(batch)


def _storm(
    log: Path, watchers: dict[str, Watcher], counts: dict[str, Callable[[], int]], seconds: int
) -> dict[str, int]:
    """Append ``STORM_RATE`` lines a second. Returns how many of the matching ones were lost."""
    before = {name: count() for name, count in counts.items()}
    size = STORM_RATE // 100
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        for tick in range(seconds * 100):
            file.write(_batch(size, tick % 8))
            file.flush()
            time.sleep(max(start + (tick + 1) / 100 - time.monotonic(), 0))
            if tick % 50 == 0:
                for watcher in watchers.values():
                    watcher.watch_memory()
    sent = seconds * 100 * (size // MATCHING)
    return {name: _missing(count, before[name] + sent) for name, count in counts.items()}


def _missing(count: Callable[[], int], goal: int) -> int:
    deadline = time.monotonic() + TIMEOUT_S
    while (missing := goal - count()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return abs(missing)


def _flood(
    log: Path, watchers: dict[str, Watcher], counts: dict[str, Callable[[], int]]
) -> dict[str, Flood]:
    """Append ``FLOOD_LINES`` at once, and see how many each gets through in ``FLOOD_S``.

    One that is still busy with the storm continues with that: its lines cost the same.
    """
    before = {name: (count(), watchers[name].cpu_s()) for name, count in counts.items()}
    lines = "".join(_batch(1000, number % 8) for number in range(FLOOD_LINES // 1000))
    start = time.monotonic()
    with log.open("a", encoding="utf-8") as file:
        file.write(lines)
    done: dict[str, Flood] = {}
    busy = set(counts)
    while busy and time.monotonic() - start < FLOOD_S:
        time.sleep(0.05)
        for name in list(busy):
            watchers[name].watch_memory()
            counted, cpu_s = before[name]
            matched = counts[name]() - counted
            used = watchers[name].cpu_s() - cpu_s
            done[name] = Flood(matched * MATCHING, time.monotonic() - start, used)
            if matched >= FLOOD_LINES // MATCHING:
                busy.discard(name)
    return done
