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
from holdfast.apps.launch.rank_output import RankOutput, RankStreams
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
        self._streams: dict[int, RankStreams] = {}

    def create(self, attempt: int) -> None:
        """Create the files of an attempt, which is the current one from now on."""
        for unused in self._streams.values():
            unused.close()
        self._attempt = attempt
        self._output.dumps(attempt)
        self.sections()
        slots = range(self._options.slots)
        self._streams = {slot: self._output.open_streams(attempt, slot) for slot in slots}

    def dumps(self) -> DumpFiles:
        """Return where ranks dump their flight recorders."""
        return dump_files(self._environment, str(self._output.dumps(self._attempt)))

    def evidence(self) -> Path:
        """Return the file for the evidence of a hang."""
        given = self._environment.get(EVIDENCE_VARIABLE)
        return Path(given) if given else self._output.evidence(self._attempt)

    def sections(self) -> Path:
        """Return the directory of the section times."""
        given = self._environment.get(SECTIONS_VARIABLE)
        return Path(given) if given else self._output.sections(self._attempt)

    def progress(self) -> dict[int, str]:
        """Return the progress file of each local rank."""
        given = self._environment.get(PROGRESS_VARIABLE)
        slots = range(self._options.slots)
        return {slot: given or str(self._folder(slot) / "progress") for slot in slots}

    def logs(self) -> dict[int, tuple[Path, ...]]:
        """Return the logs of each local rank."""
        slots = range(self._options.slots)
        return {slot: self._output.logs(self._attempt, slot) for slot in slots}

    def take_streams(self, local_rank: int) -> RankStreams:
        """Return where a rank writes, once; the caller closes it."""
        return self._streams.pop(local_rank)

    def environment_of(self, order: Order, local_rank: int, progress: str) -> dict[str, str]:
        """Return the environment of a rank, whose files of earlier attempts are removed.

        Args:
            order: order to run the round.
            local_rank: the rank.
            progress: its progress file; empty for none.

        """
        options = self._options
        dumps = self._output.dumps(self._attempt)
        error = self._output.error_file(self._attempt, local_rank)
        files = RankFiles(error=str(error), dumps=str(dumps))
        for path in (files.error, dumps / f"{DUMP_PREFIX}{order.first_rank + local_rank}"):
            with contextlib.suppress(OSError):
                os.unlink(path)
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
        environment[SECTIONS_VARIABLE] = str(self.sections())
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
        crash = crash_of(self._output.error_file(self._attempt, local_rank), stderr)
        return crash if is_crash else rerun_of(self._options.command, number, crash)

    def _folder(self, local_rank: int) -> Path:
        return self._output.folder(self._attempt, local_rank)
