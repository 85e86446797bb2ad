"""A proxy before the API server that is slow, pauses, refuses, and loses requests and answers."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from fatal_proxy import FatalProxy, serving

from tests.engines.control_plane import ControlPlane

_STATUSES = (429, 500, 503, 504)
_LONGEST_DELAY_S = 0.5
_LONGEST_PAUSE_S = 3.0
"""Longer than the lease of a leader in the tests: 1.5 s."""


class UnreliableProxy(FatalProxy):
    """Disturbs requests at random while ``is_on``.

    Each tenth request or so is refused with an error, gets lost before or after it is carried out,
    or begins a pause of all requests; others are delayed. Watches end in the middle of an event's
    bytes. Requests of the lease are disturbed, too.

    Args:
        plane: the control plane.
        folder: for the configuration of clients.
        seed: of the disturbances.
        host: see ``FatalProxy``.

    """

    def __init__(self, plane: ControlPlane, folder: Path, seed: int, host: str = "") -> None:
        self._request = threading.local()
        super().__init__(plane, folder, host)
        self.is_on = False
        self.disturbed = 0
        """Requests and answers that did not get through."""

        self._random = Random(f"unreliable {seed}")
        self._own = threading.Lock()
        self._resumes_at = 0.0

    @contextmanager
    def disturbing(self, seed: int) -> Iterator[None]:
        """Disturb requests for a while, as another seed says."""
        with self._own:
            self._random = Random(f"unreliable {seed}")
        self.is_on = True
        try:
            yield
        finally:
            self.is_on = False

    @property
    def is_answered(self) -> bool:
        """Whether the request of this thread is carried out before it gets lost."""
        return bool(self._request.is_answered)

    @is_answered.setter
    def is_answered(self, value: bool) -> None:
        self._request.is_answered = value

    def refuse(self, method: str, path: str) -> int:
        """Wait, and refuse some."""
        self._request.is_lost = self.is_answered = False
        if not self.is_on:
            return 0
        with self._own:
            kind = self._random.random()
            delay = self._random.choice([0.0, 0.0, 0.01, self._random.random() * _LONGEST_DELAY_S])
            status = self._random.choice(_STATUSES)
            self.disturbed += kind < 0.10
            if 0.10 <= kind < 0.11:
                pause = self._random.random() * _LONGEST_PAUSE_S
                self._resumes_at = max(self._resumes_at, time.monotonic() + pause)
            wait = max(delay, self._resumes_at - time.monotonic())
        time.sleep(max(0.0, wait))
        self._request.is_lost = kind < 0.06
        self.is_answered = kind < 0.03
        return status if 0.06 <= kind < 0.10 else 0

    def count(self, method: str, path: str) -> bool:
        """Whether a request gets lost, or its answer."""
        return bool(self._request.is_lost)

    def cuts(self) -> bool:
        """Whether a watch or a list ends here."""
        if not self.is_on:
            return False
        with self._own:
            is_cut = self._random.random() < 0.02
            self.disturbed += is_cut
        return is_cut


@contextmanager
def unreliable_proxy(
    plane: ControlPlane, folder: Path, seed: int, host: str = ""
) -> Iterator[UnreliableProxy]:
    with serving(UnreliableProxy(plane, folder, seed, host)) as proxy:
        yield proxy
