"""The event for a rank that has failed."""

from holdfast.apps.launch.failure_text import described
from holdfast.apps.launch.options import LaunchOptions
from holdfast.apps.launch.rank_inspection import RankInspections
from holdfast.apps.launch.rank_watches import RankWatches
from holdfast.apps.launch.ranks import Rank
from holdfast.apps.launch.round_files import RoundFiles
from holdfast.decisions.exit_meanings import ExitMeaning
from holdfast.decisions.failure_signatures import OWN_CAUSES, cause_of, is_peer_failure
from holdfast.decisions.launch_events import Failed


class RankFailures:
    """Reads why ranks have failed.

    Args:
        launcher: name of the launcher.
        options: of the launcher.
        files: of the ranks.
        watches: of the ranks: a bad loss is reported before the failure that follows from it.
        inspections: know which ranks have waited for others.

    """

    def __init__(
        self,
        launcher: str,
        options: LaunchOptions,
        files: RoundFiles,
        watches: RankWatches,
        inspections: RankInspections,
    ) -> None:
        self._launcher, self._options, self._files = launcher, options, files
        self._watches, self._inspections = watches, inspections

    def event(self, rank: Rank, first_rank: int, number: int) -> Failed | None:
        """Return the event; None for a rank that succeeded, or failed only because it was stopped.

        Args:
            rank: the rank, which has ended.
            first_rank: first rank of the node.
            number: number of the round.

        """
        code = rank.code
        if not code:
            return None
        meaning = self._options.meanings.get(code, ExitMeaning.CRASH)
        self._watches.check_losses(is_last=True)
        own, is_crash = rank.local_rank, meaning is ExitMeaning.CRASH
        in_job = first_rank + own
        stderr = self._files.end_of_stderr(own)
        reason = rank.error or self._files.exception(own, in_job, stderr, is_crash=is_crash)
        cause = (is_crash and cause_of(reason, code)) or ""
        if rank.is_stopped and cause not in OWN_CAUSES:
            return None
        may_have_waited = is_crash and not rank.is_stopped
        has_timed_out = may_have_waited and self._inspections.has_timed_out(in_job, reason)
        if has_timed_out:
            self._watches.forget_suspect()
        return Failed(
            launcher=self._launcher,
            round=number,
            rank=in_job,
            code=code,
            meaning=meaning,
            text=described(code, reason, stderr),
            has_timed_out=has_timed_out,
            is_consequence=is_crash and is_peer_failure(reason),
            cause=cause,
            has_progress=self._watches.has_progress,
        )
