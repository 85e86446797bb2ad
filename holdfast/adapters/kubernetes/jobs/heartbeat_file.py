"""Hang detection by the heartbeat file that the ranks of an attempt touch."""

import re
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.pod_exec import run_in_pod
from holdfast.adapters.kubernetes.jobs.heartbeat_settings import Heartbeat
from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.decisions.hangs import AttemptProgress, Hang, is_unarmed, silence
from holdfast.model.errors import BackendError
from holdfast.model.names import HEARTBEAT_STOPPED, HEARTBEAT_TIMEOUT, STARTUP_TIMEOUT
from holdfast.ports.clock import Clock

_LIMIT: Final = timedelta(seconds=5)
"""Timeout of reading the file of one rank."""

_SIZE: Final = 64
"""Maximum output of the script in bytes."""

_UNARMED: Final = (
    f"{HEARTBEAT_TIMEOUT} takes effect with the first heartbeat; to restart a job that hangs "
    f"before it, set {STARTUP_TIMEOUT}"
)

_ANSWER: Final = re.compile(r"(-?[0-9]{1,10})?", re.ASCII)
"""Output of the script: age in seconds, up to 300 years; empty without a file."""

_SCRIPT: Final = '[ -e "$1" ] || exit 0; echo $(($(date +%s) - $(stat -c %Y "$1")))'
"""Prints nothing without a file. Both times are the node's, so its clock offset cancels out."""


class HeartbeatFile:
    """Reads the file on all ranks of one attempt in its own threads; the newest counts for the job.

    Silence is a hang only if the file could be checked on every rank.
    """

    def __init__(self, api: Api, clock: Clock, heartbeat: Heartbeat, started_at: datetime) -> None:
        self._api = api
        self._clock = clock
        self._heartbeat = heartbeat
        self._started_at = started_at
        # Read four times per timeout, so that a hang is reported at most a quarter of it late.
        self._pause = min(max(heartbeat.timeout / 4, timedelta(seconds=1)), timedelta(seconds=30))
        self._read_at: datetime | None = None
        self._thread: threading.Thread | None = None
        self._hang: Hang | None = None
        self.error = ""
        """Why the file of a rank could not be read last time; empty if all could."""

        self.unwatched = ""
        """Why a hang is not detected yet, for people to read; empty if it is."""

    def request_read(self, pods: Sequence[PodState]) -> None:
        """Start reading unless the last read is recent or in progress; returns at once."""
        now = self._clock.now()
        is_recent = self._read_at is not None and now < self._read_at + self._pause
        if not pods or is_recent or (self._thread is not None and self._thread.is_alive()):
            return
        self._read_at = now
        self._thread = threading.Thread(
            target=self._run, args=(tuple(pods), now), name="heartbeats", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        """Wait until a read in progress ends, at most 5 s."""
        if self._thread is not None:
            self._thread.join()

    def hang(self) -> Hang | None:
        """Return the hang of the job; None if it does not hang."""
        return self._hang

    def _run(self, pods: Sequence[PodState], now: datetime) -> None:
        with ThreadPoolExecutor(max_workers=len(pods)) as pool:
            answers = list(pool.map(self._age, pods))
        errors = [answer for answer in answers if isinstance(answer, str)]
        ages = [answer for answer in answers if isinstance(answer, timedelta)]
        self.error = errors[0] if errors else ""
        last = now - min(ages) if ages else None
        is_earlier = last is not None and last < self._started_at  # of the previous attempt
        limits = self._heartbeat.limits
        progress = AttemptProgress(
            started_at=self._started_at,
            last_at=None if is_earlier else last,
            known_until=None if errors else now,
        )
        missing = f"no rank touched {self._heartbeat.path}"
        self._hang = silence(limits, progress, reason=HEARTBEAT_STOPPED, missing=missing)
        self.unwatched = f"{missing} yet: {_UNARMED}" if is_unarmed(limits, progress) else ""

    def _age(self, pod: PodState) -> timedelta | str | None:
        """Age of a rank's file, None without a file, or the error as text."""
        command = ("sh", "-c", _SCRIPT, "sh", self._heartbeat.path)
        try:
            output = run_in_pod(
                self._api, pod.path, pod.container, command, within=_LIMIT, limit=_SIZE
            )
        except BackendError as error:
            return str(error)
        text = output.text.strip()
        if output.error or not _ANSWER.fullmatch(text):
            return f"the heartbeat of {pod.name} cannot be read: {output.error or text}"
        return timedelta(seconds=int(text)) if text else None
