"""Follows the log of a pod while the pod runs."""

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.values import format_time
from holdfast.adapters.kubernetes.client.watch import ResponseStream
from holdfast.adapters.kubernetes.jobs.log_lines import Position, Splitter
from holdfast.adapters.kubernetes.jobs.objects import PodState
from holdfast.kit.backoff import Backoff
from holdfast.model.errors import BackendError
from holdfast.ports.clock import Clock

_ANSWER: Final = timedelta(seconds=10)
"""Timeout between bytes when existing lines are read."""

_SILENCE: Final = timedelta(hours=1)
"""Read timeout of a followed log, after which it is opened again. A lost API server is detected
within 15 s, see ``server``."""

_BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(seconds=30))


class PodLog:
    """Reads the log of a pod in its own thread, from its beginning until ``stop``.

    Lines missed while the API server or the kubelet was unavailable are read later, none twice.
    """

    def __init__(
        self, api: Api, clock: Clock, pod: PodState, take: Callable[[Sequence[str]], None]
    ) -> None:
        """Create the reader; ``take`` receives new lines and may raise ``BackendError``."""
        self._api = api
        self._clock = clock
        self._path = f"{pod.path}/log"
        self._container = pod.container
        self._take = take
        self._position = Position()
        self._lock = threading.Lock()
        self._stream: ResponseStream | None = None
        self._followed: ResponseStream | None = None
        """The stream if it is followed; None while existing lines are read."""

        self._is_check_requested = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"log of {pod.name}", daemon=True)
        self.known_until: datetime | None = None
        """Time until which all output has been processed."""

        self.error = ""
        """Why the log cannot be read; empty if it can."""

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread soon; returns at once."""
        self._over.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()

    def join(self) -> None:
        """Wait for the thread to end, after ``stop``."""
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """Whether the thread is running."""
        return self._thread.is_alive()

    def check(self) -> None:
        """Open the log again to verify that no line is missing; soon advances ``known_until``.

        A silent stream may be a dead connection between the API server and the node.
        """
        with self._lock:
            if self._followed is not None:
                self._followed.close()
                self._is_check_requested = True

    def _run(self) -> None:
        attempts = 1
        while not self._over.is_set():
            requested_at, has_lines = self._clock.now(), False
            try:
                self._read(follow=False)
                self.known_until, self.error = requested_at, ""
                has_lines = self._read(follow=True)
            except BackendError as error:
                self.error = str(error)
            attempts = 1 if has_lines else attempts + 1
            if not self._is_check_requested:
                self._over.wait(_BACKOFF.delay(attempts).total_seconds())
            self._is_check_requested = False

    def _read(self, *, follow: bool) -> bool:
        """Process a response until it ends; returns whether it had new lines."""
        params = {"timestamps": "true", "container": self._container}
        params |= {"follow": "true"} if follow else {}
        if self._position.since is not None:
            params["sinceTime"] = format_time(self._position.since)
        has_new_lines = False
        splitter = Splitter()
        stall = _SILENCE if follow else _ANSWER
        with ResponseStream(*self._api.opened(self._path, params, stall)) as stream:
            self._opened(stream, stream if follow else None)
            try:
                while not self._over.is_set() and (piece := stream.read()):
                    lines = self._position.fresh(list(splitter.lines(piece)))
                    if lines:
                        self._take([line.text for line in lines])
                        self._position.read(lines)
                        has_new_lines = True
            finally:
                self._opened(None, None)
        if splitter.has_foreign and not splitter.has_lines:
            raise BackendError(f"{self._path}: the kubelet cannot read it now")
        return has_new_lines

    def _opened(self, stream: ResponseStream | None, followed: ResponseStream | None) -> None:
        self._position.opened()
        with self._lock:
            self._stream, self._followed = stream, followed
