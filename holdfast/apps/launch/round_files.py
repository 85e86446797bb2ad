"""Files of the ranks of a node, and the environment that names them."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from holdfast.apps.launch.failure_text import crash_of, rerun_of
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.rank_environment import (
    JobNames,
    RankFiles,
    launcher_environment,
    rank_environment,
)
from holdfast.apps.launch.rank_output import ERROR_FILE, RankOutput, RankStreams
from holdfast.decisions.flight_recorder import DUMP_PREFIX, DumpFiles, dump_files
from holdfast.decisions.launch_orders import Order
from holdfast.model.jobs import EVIDENCE_VARIABLE, PROGRESS_VARIABLE, SECTIONS_VARIABLE


class RoundFiles:
    """Files of one round after the other.

    Args:
        options: of the launcher.
        environment: of the launcher; it may name files that all ranks share.
        output: has the files of each attempt.

    """

    def __init__(
        self, options: LaunchOptions, environment: Mapping[str, str], output: RankOutput
    ) -> None:
        self._options, self._environment, self._output = options, environment, output
        self._attempt = 0
        self._folders: dict[int, Path] = {}
        self._streams: dict[int, RankStreams] = {}
        self.dumps = DumpFiles.in_folder("")
        """Where ranks dump their flight recorders."""

        self.sections = Path()
        """Directory of the section times."""

        self.logs: dict[int, tuple[Path, ...]] = {}
        """Logs of each local rank."""

    def create(self, order: Order) -> None:
        """Create the files of a round, and remove those of earlier attempts with its name."""
        self._attempt = attempt = order.history.total
        dumps = self._output.dumps(attempt)
        self.dumps = dump_files(self._environment, str(dumps))
        given = self._environment.get(SECTIONS_VARIABLE)
        self.sections = Path(given) if given else self._output.sections(attempt)
        slots = range(self._options.slots)
        self._folders = {slot: self._output.folder(attempt, slot) for slot in slots}
        self.logs = {slot: self._output.logs(attempt, slot) for slot in slots}
        for slot, folder in self._folders.items():
            for path in (folder / ERROR_FILE, dumps / f"{DUMP_PREFIX}{order.first_rank + slot}"):
                with contextlib.suppress(OSError):
                    os.unlink(path)
        self._streams = {slot: self._output.open_streams(attempt, slot) for slot in slots}

    def discard(self) -> None:
        """Close the files of a round that has not started."""
        for unused in self._streams.values():
            unused.close()
        self._streams = {}
        self._output.copy(is_over=True)

    def evidence(self) -> Path:
        """Return the file for the evidence of a hang."""
        given = self._environment.get(EVIDENCE_VARIABLE)
        return Path(given) if given else self._output.evidence(self._attempt)

    def progress(self) -> dict[int, str]:
        """Return the progress file of each local rank."""
        given = self._environment.get(PROGRESS_VARIABLE)
        return {slot: given or str(folder / "progress") for slot, folder in self._folders.items()}

    def take_streams(self, local_rank: int) -> RankStreams:
        """Return where a rank writes, once; the caller closes it."""
        return self._streams.pop(local_rank)

    def environment_of(self, order: Order, local_rank: int, progress: str) -> dict[str, str]:
        """Return the environment of a rank.

        Args:
            order: order to run the round.
            local_rank: the rank.
            progress: its progress file; empty for none.

        """
        options = self._options
        error = self._folders[local_rank] / ERROR_FILE
        files = RankFiles(error=str(error), dumps=str(self._output.dumps_folder(self._attempt)))
        if options.starts_ranks:
            environment = launcher_environment(self._environment, order, files)
        else:
            names = JobNames(
                run_id=options.run_id, role=options.role, max_restarts=options.budget.in_place
            )
            environment = rank_environment(
                self._environment, order, local_rank, options.slots, names, files
            )
        if progress:
            environment[PROGRESS_VARIABLE] = progress
        environment[SECTIONS_VARIABLE] = str(self.sections)
        return environment

    def end_of_stderr(self, local_rank: int) -> str:
        """Return the end of the standard error of a rank."""
        return self._output.end_of_stderr(self._attempt, local_rank)

    def exception(self, local_rank: int, number: int, stderr: str, *, is_crash: bool) -> str:
        """Return the exception of a rank that has ended; empty if there is none.

        Args:
            local_rank: the rank.
            number: the same rank in the job.
            stderr: end of its standard error.
            is_crash: whether its exit code is not one of Megatron, which exits on purpose.

        """
        crash = crash_of(self._folders[local_rank] / ERROR_FILE, stderr)
        return crash if is_crash else rerun_of(self._options.command, number, crash)
