"""Files of the ranks of an attempt. Ranks that keep running during an exchange keep their files."""

import os
from dataclasses import dataclass
from pathlib import Path

from holdfast.adapters.local.layout import RunDir


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptFiles:
    """Files that the ranks of an attempt write.

    After an exchange, the ranks that stayed have the paths of the attempt in which all ranks were
    launched, and the new ones get the same.
    """

    own: RunDir
    launched_in: int
    """Attempt in which all ranks were launched."""

    keeps_ranks: bool
    """See ``JobSpec.keeps_ranks``."""

    @property
    def progress(self) -> Path:
        """Return a name of the file with the steps of the present attempt."""
        if not self.keeps_ranks:
            return self.own.progress(self.launched_in)
        return self.own.progress(self.launched_in).with_suffix(".ranks")

    @property
    def dumps(self) -> Path:
        """Return the folder of the flight recorders' dumps."""
        return self.own.flight_dumps(self.launched_in)

    @property
    def sections(self) -> Path:
        """Return the folder of the times of sections."""
        return self.own.sections(self.launched_in)

    @property
    def evidence(self) -> Path:
        """Return the file for the evidence of a hang."""
        return self.own.evidence(self.launched_in)

    def create(self, attempt: int) -> None:
        """Let the ranks write the steps of ``attempt`` from now on, and continue their logs.

        Raises:
            OSError: a file cannot be created.

        """
        for folder in (self.dumps, self.sections):
            folder.mkdir(parents=True, exist_ok=True)
        if self.keeps_ranks:
            self._name_steps(self.own.progress(attempt))
        if attempt != self.launched_in:
            _continue(self.own.log(attempt, 0).parent, self.own.log(self.launched_in, 0).parent)
            _continue(self.own.sections(attempt), self.sections)

    def _name_steps(self, steps: Path) -> None:
        """Let the ranks append to ``steps`` from now on, under the name that they have."""
        steps.touch()
        if self.progress.exists() and self.progress.samefile(steps):
            return
        new = self.progress.with_suffix(".new")
        new.unlink(missing_ok=True)
        os.link(steps, new)
        new.replace(self.progress)


def _continue(name: Path, earlier: Path) -> None:
    if not name.exists():
        name.symlink_to(earlier.name)


def has_same_logs(own: RunDir, attempt: int, other: int) -> bool:
    """Return whether the logs of two attempts are the same files: nodes were exchanged between."""
    logs, others = own.log(attempt, 0).parent, own.log(other, 0).parent
    try:
        return logs.samefile(others)
    except OSError:
        return False
