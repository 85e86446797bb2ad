"""Drain of nodes: lists their pods and evicts them."""

import threading
import time
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from typing import Final, Protocol

from holdfast.adapters.kubernetes.client.api import Api
from holdfast.adapters.kubernetes.client.errors import Conflict, Json, NotFound, Throttled
from holdfast.adapters.kubernetes.nodes.pods import Pod, PodOwner, is_holdfast, leaving_pods
from holdfast.model.errors import BackendError

UNCOUNTED: Final = ("(not counted yet)",)
"""Placeholder for the pods of a node that were not listed yet: it does not count as empty."""

_EVERY_S: Final = 1.0
"""Interval between two listings of one node's pods."""

Reported = Callable[[str, PodOwner], None]
"""Receives a node and the owner of an evicted pod, once for each pod."""


class Drainer:
    """Follows the pods of some nodes in its own thread, from ``start`` to ``stop``.

    Pods are evicted with the Eviction API, which respects disruption budgets; a refused eviction
    is retried without limit. The decision core decides when the repair continues nevertheless.
    """

    def __init__(
        self,
        api: Api,
        *,
        may_act: Callable[[], bool],
        changed: Callable[[], None],
        failed: Callable[[str, str], None],
        evicted: Reported,
        own: str,
        stops_itself: Callable[[str], bool] = lambda _pod: False,
    ) -> None:
        """Create the drainer; no request is sent yet.

        Args:
            api: the client.
            may_act: whether pods may be evicted; listing is always allowed.
            changed: called from the thread when the pods of a node have changed.
            failed: called from the thread with an operation and its error, once for each error.
            evicted: see ``Reported``.
            own: namespace of Holdfast, whose own pods do not count before they are to be evicted:
                work that waits for jobs does not wait for them.
            stops_itself: whether a pod, as ``namespace/name``, is stopped together with its whole
                job: it is counted, but not evicted.

        """
        self._api = api
        self._may_act = may_act
        self._changed = changed
        self._failed = failed
        self._evicted = evicted
        self._own = own
        self._stops_itself = stops_itself
        self._lock = threading.Lock()
        self._followed: Mapping[str, bool] = {}
        self._drained: frozenset[str] = frozenset()
        self._emptied: frozenset[str] = frozenset()
        self._jobs: dict[str, tuple[str, ...]] = {}
        self._listed_at: dict[str, float] = {}
        self._errors: dict[str, str] = {}
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drain", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the call in progress."""
        self._stopped.set()
        self._woken.set()
        self._thread.join()

    def follow(self, nodes: Mapping[str, bool], emptied: Set[str]) -> None:
        """Follow the pods of these nodes from now on, and of no others.

        Args:
            nodes: name to whether the node is fenced: its pods are evicted, and deleted as soon as
                they terminate.
            emptied: those nodes on which Holdfast's own pods count, too.

        """
        with self._lock:
            is_new = {*(nodes.keys() - self._followed.keys()), *(emptied - self._emptied)}
            for node in emptied - self._emptied:
                self._listed_at.pop(node, None)
                self._jobs.pop(node, None)
            self._emptied = frozenset(emptied)
            self._followed = dict(nodes)
            self._drained &= nodes.keys()
            for removed in self._jobs.keys() - nodes.keys():
                del self._jobs[removed]
        if is_new:
            self._woken.set()

    def drain(self, node: str) -> None:
        """Evict the pods of a node, repeatedly while it is followed."""
        with self._lock:
            is_new = node in self._followed and node not in self._drained
            if is_new:
                self._drained |= {node}
                self._listed_at.pop(node, None)
        if is_new:
            self._woken.set()

    def stop_evicting(self, node: str) -> None:
        """Stop evicting the pods of a node."""
        with self._lock:
            self._drained -= {node}

    def jobs(self, node: str) -> tuple[str, ...]:
        """Return the pods to evict from a node, as ``namespace/name``, or ``UNCOUNTED``."""
        with self._lock:
            return self._jobs.get(node, UNCOUNTED)

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.wait(self._until_next())
            self._woken.clear()
            due = self._due()
            for node in due:
                if self._stopped.is_set():
                    return
                self._evict_pods(node)

    def _until_next(self) -> float | None:
        """Seconds until a node is due; None if none is followed."""
        with self._lock:
            if not self._followed:
                return None
            listed_at = (self._listed_at.get(node, 0.0) for node in self._followed)
            return max(0.0, min(listed_at) + _EVERY_S - time.monotonic())

    def _due(self) -> list[str]:
        latest = time.monotonic() - _EVERY_S
        with self._lock:
            for removed in self._listed_at.keys() - self._followed.keys():
                del self._listed_at[removed]
                self._errors.pop(removed, None)
            return [n for n in self._followed if self._listed_at.get(n, latest) <= latest]

    def _evict_pods(self, node: str) -> None:
        with self._lock:
            is_fenced = self._followed.get(node)
            is_drained = node in self._drained
            self._listed_at[node] = time.monotonic()
        if is_fenced is None:
            return
        params = {"fieldSelector": f"spec.nodeName={node}"}
        problems = []
        try:
            found = list(self._api.list("/api/v1/pods", params))
        except BackendError as error:
            self._report(node, str(error))
            return
        self._count(node, found)
        for pod in leaving_pods(found) if self._may_act() else ():
            try:
                if is_fenced and pod.is_terminating:
                    self._remove(pod)
                elif (is_fenced or is_drained) and not self._is_ending(pod):
                    self._evict(node, pod)
            except BackendError as error:
                problems.append(f"{pod}: {error}")
        self._report(node, "; ".join(problems))

    def _is_ending(self, pod: Pod) -> bool:
        """Whether a pod is terminating, or is stopped together with its whole job."""
        return pod.is_terminating or self._stops_itself(str(pod))

    def _report(self, node: str, problem: str) -> None:
        """Report an error once; empty if there was none."""
        if problem and self._errors.get(node) != problem:
            self._failed(f"draining {node}", problem)
        self._errors[node] = problem

    def _count(self, node: str, found: list[Json]) -> None:
        work = [pod for pod in found if not is_holdfast(pod, self._own)]
        with self._lock:  # the drain may have begun since the pods were requested
            is_emptied = self._followed.get(node) or node in self._emptied
            names = tuple(map(str, leaving_pods(found if is_emptied else work)))
            has_changed = node in self._followed and self._jobs.get(node) != names
            if has_changed:
                self._jobs[node] = names
        if has_changed:
            self._changed()

    def _evict(self, node: str, pod: Pod) -> None:
        try:
            is_evicted = evict(self._api, pod)
        except Throttled as error:
            if not error.is_disruption_budget:
                raise
            return
        if is_evicted and pod.owner is not None:
            self._evicted(node, pod.owner)

    def _remove(self, pod: Pod) -> None:
        with suppress(NotFound, Conflict):
            self._api.delete(pod.path, uid=pod.uid, grace=0)


class _Evictable(Protocol):
    @property
    def namespace(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...
    @property
    def path(self) -> str: ...


def evict(api: Api, pod: _Evictable) -> bool:
    """Evict a pod; False if it is gone, or was replaced by another of the same name.

    Raises:
        Throttled: a disruption budget refuses the eviction.
        BackendError: it could not be evicted.

    """
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    try:
        api.create(f"{pod.path}/eviction", eviction, repeatable=True)
    except (NotFound, Conflict):
        return False
    return True
