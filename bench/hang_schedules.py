"""Random hangs, and what was measured of each: a file of results from which a run continues."""

import json
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from holdfast.decisions.hang_verdict import VerdictKind

RANKS: Final = 8
TIMEOUT_S: Final = 8
"""Minimum time without a step after which a hang is suspected, here and by peers."""

EXPECTED: Final = {
    "asleep": VerdictKind.ABSENT,
    "dataloader": VerdictKind.ABSENT,
    "sigstop": VerdictKind.STOPPED,
    "storage": VerdictKind.STORAGE,
    "mismatch": VerdictKind.DESYNCHRONIZED,
}
"""Causes by kind of hang. The last one ends the job: nothing can resolve it."""

FRAMEWORKS: Final = {
    "ddp": "torch",
    "fsdp": "torch",
    "trainer": "transformers",
    "lightning": "lightning",
}
"""Modules by framework."""

_PAUSES: Final = 0.15
"""Share of schedules with a healthy pause before the hang."""

_PAUSE_S: Final = round(0.6 * TIMEOUT_S)


@dataclass(frozen=True, slots=True)
class Schedule:
    """One hang."""

    number: int
    framework: str
    kind: str
    rank: int
    step: int
    """Steps since the hang before."""

    pause_s: int
    """Duration of a pause of one rank before, in which nothing hangs; 0 for none."""

    @classmethod
    def of(
        cls, number: int, kinds: Sequence[str], frameworks: Sequence[str], seed: int = 0
    ) -> "Schedule":
        """Return the schedule with a number: kinds and frameworks take turns."""
        draw = random.Random(f"hang {seed} {number}" if seed else f"hang {number}")
        return cls(
            number=number,
            framework=frameworks[number // len(kinds) % len(frameworks)],
            kind=kinds[number % len(kinds)],
            rank=draw.randrange(RANKS),
            step=draw.randint(20, 60),
            pause_s=_PAUSE_S if draw.random() < _PAUSES else 0,
        )

    @property
    def line(self) -> str:
        """Return the line of this hang in the file of the script."""
        return f"{self.kind} {self.rank} {self.step} {self.pause_s}\n"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Properties of the verdict on one schedule."""

    number: int
    framework: str
    kind: str
    is_rank: bool
    """Whether the rank was named, and no other one."""

    is_kind: bool
    is_false: bool
    """Whether a verdict was given before anything hung."""

    verdict_s: float
    """From the suspicion to the stored verdict."""

    hung_s: float
    """From the hang to the stored verdict."""

    healthy_s: float
    """From the first step, or the hang before, to this hang."""

    text: str

    @property
    def is_right(self) -> bool:
        """Whether rank and cause are named, and nothing before."""
        return self.is_rank and self.is_kind and not self.is_false


class Results:
    """Results in a file, one JSON object a line; several threads may add to them.

    Args:
        file: where they are kept; created with the first one.

    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._began, self._expected, self._added, self._wrong = time.monotonic(), 0, 0, 0

    def begin(self, expected: int) -> None:
        """Begin to add a number of outcomes."""
        self._began, self._expected, self._added, self._wrong = time.monotonic(), expected, 0, 0

    @property
    def progress(self) -> str:
        """Return how many outcomes were added and are left, for people to read."""
        took_s = time.monotonic() - self._began
        left_s = took_s / max(self._added, 1) * (self._expected - self._added)
        return (
            f"{self._added} of {self._expected} done, {self._wrong} wrong, about "
            f"{left_s / 60:.0f} min left"
        )

    def known(self) -> dict[int, Outcome]:
        """Return the outcomes by number of the schedule."""
        try:
            lines = self._file.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return {}
        outcomes = [Outcome(**json.loads(line)) for line in lines]
        return {one.number: one for one in outcomes}

    def add(self, outcome: Outcome) -> None:
        """Append an outcome."""
        with self._lock:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            self._added += 1
            self._wrong += not outcome.is_right
