"""Leader election by a Lease, with the rules of client-go.

A leader renews the lease every ``retry``. When it has not succeeded for ``renew_deadline`` it stops
by itself, counting from before it sent its last successful renewal. Another takes the lease when it
has not seen it change for the whole ``duration``, counting on its own clock from when it saw the
last change; the times in the lease are for people only. So the old leader has stopped before a new
one begins, whatever the replicas' clocks show, as long as no clock runs ``duration /
renew_deadline`` times as fast as another (1.5 by default).

A leader whose own node is about to be drained hands over: it stops acting at once, releases the
lease after one ``retry``, when its last call has ended, and leaves it to others for a ``duration``.
If no other replica takes it, it leads again: work on a node that is drained is better than none.

What a leader had begun when it was suspended may still arrive later; writes that bear a resource
version are refused then.
"""

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from holdfast.adapters.kubernetes.client.api import Api, Json
from holdfast.adapters.kubernetes.client.errors import AlreadyExists, Conflict, NotFound
from holdfast.kit.jitter import JITTER
from holdfast.model.errors import BackendError

_SPREAD: Final = 1.2
"""Jitter factor, as in client-go, so that replicas do not retry at the same time."""

_NEVER: Final = float("-inf")

# The monotonic clock of Linux stands still while the machine is suspended, this one does not.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseDurations:
    """Durations of leader election; the defaults are those of client-go."""

    duration: timedelta = timedelta(seconds=15)
    """A lease that was not renewed for this long may be acquired by another replica."""

    renew_deadline: timedelta = timedelta(seconds=10)
    """A leader that could not renew its lease for this long stops leading."""

    retry: timedelta = timedelta(seconds=2)
    """Time between two attempts to acquire or renew the lease."""

    def __post_init__(self) -> None:
        if not timedelta() < self.retry * _SPREAD < self.renew_deadline < self.duration:
            raise ValueError(
                "a lease needs retry * 1.2 < renew_deadline < duration, got "
                f"{self.retry}, {self.renew_deadline}, {self.duration}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElector:
    """State of leader election in one replica: immutable; times are seconds of its own clock."""

    identity: str
    durations: LeaseDurations
    lease: Json | None = None
    """Lease as last read, without metadata if it was deleted; None before the first read."""

    changed_at: float = _NEVER
    """Time at which its current content was first observed."""

    safe_until: float = _NEVER
    """Time before which no other replica can lead."""

    def read(self, lease: Json | None, now: float) -> Self:
        """State after the lease was read; ``now`` is at or after the time of the response."""
        if lease is None:  # deleted: its holder may not know yet, and acts for as long as it may
            lease = {"spec": _spec(self.lease)}
        is_same = self.lease is not None and _revision(lease) == _revision(self.lease)
        return replace(self, lease=lease, changed_at=self.changed_at if is_same else now)

    def may_claim(self, now: float) -> bool:
        """Whether the lease is held by this replica, has no holder, or has expired."""
        spec = _spec(self.lease)
        holder = spec.get("holderIdentity") or ""
        # One that was deleted may have been another's in the end, unless we still lead.
        is_own = holder == self.identity and (bool(_revision(self.lease)) or self.leads(now))
        if not holder or is_own:
            return True
        return now >= self.changed_at + _duration_s(spec, self.durations)

    def claim(self, wall: datetime) -> Json:
        """Return the lease to write; ``wall`` is informational."""
        lease = self.lease or {}
        spec = _spec(lease)
        renewed = _micro_time(wall)
        if renewed == spec.get("renewTime"):  # a write that changes nothing renews nothing
            renewed = _micro_time(wall + timedelta.resolution)
        changes = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self.durations.duration.total_seconds()),
            "renewTime": renewed,
        }
        if spec.get("holderIdentity") != self.identity:
            changes["acquireTime"] = changes["renewTime"]
            changes["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + 1
        return {**lease, "spec": {**spec, **changes}}

    def claimed(self, lease: Json, sent_at: float) -> Self:
        """State after the API server accepted a claim that was sent from ``sent_at`` on."""
        until = sent_at + self.durations.renew_deadline.total_seconds()
        return replace(self, lease=lease, safe_until=until)

    def leads(self, now: float) -> bool:
        """Whether this replica leads: no other can before the next renewal is due."""
        return now < self.safe_until

    def resigned(self) -> Self:
        """State after this replica stopped leading."""
        return replace(self, safe_until=_NEVER)


class LeaderElection:
    """Acquires and renews a lease in its own thread, from ``start`` to ``stop``."""

    def __init__(
        self,
        api: Api,
        *,
        namespace: str,
        name: str,
        identity: str,
        changed: Callable[[], None],
        durations: LeaseDurations | None = None,
        yields: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create the election; no request is sent yet.

        Args:
            api: a client with a timeout of at most half the ``renew_deadline``, and no rate limit,
                so that one slow call does not cost the leadership.
            namespace: namespace of the Lease.
            name: name of the Lease.
            identity: of this process and no other, now or later; a restarted one is another.
            changed: called from the thread when leadership has begun or ended.
            durations: the times; all replicas should have the same.
            yields: whether another replica should lead, if there is one; called from any thread.

        """
        self._api = api
        self._folder = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._path = f"{self._folder}/{name}"
        self._new = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": namespace},
        }
        self._changed = changed
        self._elector = LeaderElector(identity=identity, durations=durations or LeaseDurations())
        self._yields = yields
        self.elected = 0
        """Number of times that this process took the lease over: others may have led before."""

        self._left_at: float | None = None
        self._error = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"leader {name}", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Release the lease, so that another replica need not wait until it expires.

        The caller has stopped all work of a leader before.
        """
        self._stopped.set()
        self._thread.join()

    @property
    def leading(self) -> bool:
        """Whether this process leads now; to be checked before each action of a leader."""
        now = _now()
        return self._elector.leads(now) and not self._hands_over(now)

    @property
    def holder(self) -> str:
        """Identity of the last observed holder; empty if there is none."""
        return str(_spec(self._elector.lease).get("holderIdentity") or "")

    @property
    def error(self) -> str:
        """Error of the last attempt; empty if it succeeded."""
        return self._error

    def _run(self) -> None:
        retry_s = self._elector.durations.retry.total_seconds()
        was_leading = False
        while not self._stopped.is_set():
            try:
                self._try()
                self._error = ""
            except BackendError as error:
                self._error = str(error)
            if self.leading != was_leading:
                was_leading = not was_leading
                self._changed()
            self._stopped.wait(retry_s * JITTER.uniform(1.0, _SPREAD))
        self._release()

    def _try(self) -> None:
        if not self._yields():
            self._left_at = None
        self._elector = self._elector.read(self._read(), _now())
        if self._hands_over(_now()):
            self._leave()
            return
        if not self._elector.may_claim(_now()):
            self._elector = self._elector.resigned()
            return
        sent_at, is_other = _now(), self.holder != self._elector.identity
        lease = self._write(self._elector.claim(datetime.now(UTC)))
        if lease is not None:
            self.elected += is_other  # before others can see that it leads
            self._elector = self._elector.claimed(lease, sent_at)

    def _hands_over(self, now: float) -> bool:
        """Whether the lease is left to others, until none has taken it for its duration."""
        left_at, duration = self._left_at, self._elector.durations.duration
        return self._yields() and (left_at is None or now < left_at + duration.total_seconds())

    def _leave(self) -> None:
        """Release the lease, but not before a call that a leader had begun has ended."""
        if self._left_at is None:
            self._left_at = _now()
        elif _now() >= self._left_at + self._elector.durations.retry.total_seconds():
            self._release()

    def _read(self) -> Json | None:
        try:
            return self._api.get(self._path)
        except NotFound:
            return None

    def _write(self, lease: Json) -> Json | None:
        """Return the lease as written; None after a write conflict."""
        try:
            if "metadata" in lease:
                return self._api.replace(self._path, lease)
            return self._api.create(self._folder, {**self._new, **lease}, repeatable=True)
        except (AlreadyExists, Conflict, NotFound):
            return None

    def _release(self) -> None:
        holds = self.holder == self._elector.identity
        self._elector = self._elector.resigned()
        lease = self._elector.lease
        if lease is None or not holds:
            return
        spec = {**_spec(lease), "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            self._write({**lease, "spec": spec})
        except BackendError as error:
            self._error = str(error)  # the lease expires by itself


def _now() -> float:
    return time.clock_gettime(_CLOCK)


def _spec(lease: Json | None) -> Json:
    spec = (lease or {}).get("spec")
    return spec if isinstance(spec, dict) else {}


def _duration_s(spec: Json, durations: LeaseDurations) -> float:
    """Lease duration that its holder uses, or ours if that is longer."""
    return max(float(spec.get("leaseDurationSeconds") or 0), durations.duration.total_seconds())


def _revision(lease: Json | None) -> str:
    return str(((lease or {}).get("metadata") or {}).get("resourceVersion", ""))


def _micro_time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
