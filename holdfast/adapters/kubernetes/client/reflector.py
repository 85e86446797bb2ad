"""Cache of the objects of one kind, updated by list and watch."""

import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, Generic, TypeVar

from holdfast.adapters.kubernetes.client.api import Api, Json, Params, Watch
from holdfast.adapters.kubernetes.client.errors import Gone, NotFound
from holdfast.kit.backoff import Backoff
from holdfast.kit.jitter import JITTER
from holdfast.model.errors import BackendError

T = TypeVar("T")

_BACKOFF: Final = Backoff(first=timedelta(seconds=0.1), longest=timedelta(seconds=5))
_WATCH_S: Final = (240, 360)
"""Range of watch timeouts in seconds; randomized, so that replicas do not re-watch together."""

_STALL: Final = timedelta(minutes=2)
"""Read timeout of a watch. The API server sends a bookmark every minute."""


class Cache(Generic[T]):
    """Cached collection; ``version`` is the resource version up to which it is complete."""

    def __init__(self, trim: Callable[[Json], T]) -> None:
        self._trim = trim
        self._ahead: dict[str, int] = {}
        self.objects: dict[str, T] = {}
        self.version = ""

    def replace(self, found: dict[str, T], version: str) -> bool:
        """Replace the content with a list; return whether that changed anything."""
        listed = _number(version)
        self._ahead = {key: ahead for key, ahead in self._ahead.items() if ahead > listed}
        found |= {key: self.objects[key] for key in self._ahead}
        differs = found != self.objects
        self.objects = found
        self.version = version
        return differs

    def apply(self, kind: str, content: Json) -> bool:
        """Apply a watch event; return whether that changed anything."""
        key, version = _key(content), _version(content)
        self.version = version
        if kind == "BOOKMARK" or _number(version) < self._ahead.get(key, 0):
            return False
        self._ahead.pop(key, None)
        if kind == "DELETED":
            return self.objects.pop(key, None) is not None
        trimmed = self._trim(content)
        differs = key not in self.objects or self.objects[key] != trimmed
        self.objects[key] = trimmed  # even if equal: ignored fields may be newer
        return differs

    def learn(self, content: Json) -> None:
        """Store an object from another response, unless the cached one is newer."""
        key, version = _key(content), _number(_version(content))
        # The events take precedence up to the version that they reached, deletions included.
        if version > max(_number(self.version), self._ahead.get(key, 0)):
            self.objects[key] = self._trim(content)
            self._ahead[key] = version


class Reflector(Generic[T]):
    """Updates a cache in its own thread, from ``start`` to ``stop``.

    While the API server is unavailable, the cache is unchanged; afterwards it resumes at its
    resource version, or, if that has expired, compares with a new list. Either way the cache
    converges to the collection, deletions included, and never to an older state.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        trim: Callable[[Json], T],
        changed: Callable[[], None],
        params: Params | None = None,
    ) -> None:
        """Create the reflector; no request is sent yet.

        Args:
            api: the client; its rate limit counts a watch as one request.
            path: of the collection, such as ``/api/v1/nodes``.
            trim: what is kept of an object. Pure; must bear whatever the API server may send.
            changed: called from the thread after the copy has changed. Changes that ``trim``
                leaves no trace of do not count, so that the kubelets' heartbeats wake nobody.
            params: selectors.

        """
        self._api = api
        self._path = path
        self._trim = trim
        self._changed = changed
        self._params = dict(params or {})
        self._lock = threading.Lock()
        self._copy = Cache(trim)
        self._failures = 0
        self._updated_at = time.monotonic()
        self._error = ""
        self._is_missing = False
        self._synced = threading.Event()
        self._is_lost = True
        self._lists = 0  # that were requested
        self._stopped = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"reflector {path}", daemon=True)

    def start(self) -> None:
        """Start the thread; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread after the call in progress."""
        self._stopped.set()
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.close()
        self._thread.join()

    def objects(self) -> Mapping[str, T]:
        """Snapshot of the cache by ``name`` or ``namespace/name``; empty before the first list."""
        with self._lock:
            return dict(self._copy.objects)

    @property
    def synced(self) -> bool:
        """Whether the cache was complete at least once, and since ``list_anew``."""
        return self._synced.is_set()

    @property
    def age(self) -> timedelta:
        """Time since the last event or response; about a minute without changes."""
        with self._lock:
            return timedelta(seconds=time.monotonic() - self._updated_at)

    @property
    def error(self) -> str:
        """Current error of list or watch; empty if there is none."""
        with self._lock:
            return self._error

    @property
    def is_missing(self) -> bool:
        """Whether ``error`` is that the resource is not defined (any more)."""
        with self._lock:
            return self._is_missing

    def learn(self, content: Json) -> None:
        """Store the response to a write, so that the writer sees it at once."""
        with self._lock:
            self._copy.learn(content)

    def list_anew(self, limit: timedelta) -> None:
        """List the collection again, for ``limit`` at most; ``synced`` is false until it is done.

        A watch without events may lack what others have written.
        """
        with self._lock:
            self._synced.clear()
            self._is_lost = True
            self._lists += 1
            watch = self._watch
        if watch is not None:
            watch.close()
        self._synced.wait(limit.total_seconds())

    def _run(self) -> None:
        while not self._stopped.wait(
            _BACKOFF.delay(self._failures, JITTER.random()).total_seconds()
        ):
            self._failures += 1  # reset by an event: a watch that ends without one has failed
            try:
                if self._is_lost:
                    self._list()
                self._follow()
            except Gone:
                self._is_lost = True
            except BackendError as error:
                with self._lock:
                    self._error = str(error)
                    self._is_missing = isinstance(error, NotFound)

    def _list(self) -> None:
        found: dict[str, T] = {}
        version, number = "", self._lists
        for page in self._api.pages(self._path, self._params):
            found.update((_key(content), self._trim(content)) for content in page.items)
            version = page.resource_version
        with self._lock:
            differs = self._copy.replace(found, version)
            self._is_missing = False
            self._updated_at = time.monotonic()
            if self._lists == number:  # else it was requested anew meanwhile
                self._is_lost = False
                self._synced.set()
        if differs:
            self._changed()

    def _follow(self) -> None:
        """Apply events until the watch ends."""
        params: Params = {
            **self._params,
            "resourceVersion": self._copy.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": JITTER.randint(*_WATCH_S),
        }
        with self._api.watch(self._path, params, stall=_STALL) as watch:
            with self._lock:
                self._watch = watch
                self._error = ""
            if self._stopped.is_set() or self._is_lost:
                return
            for event in watch:
                if self._apply(event):
                    self._changed()

    def _apply(self, event: Json) -> bool:
        with self._lock:
            self._updated_at = time.monotonic()
            self._failures = 0
            return self._copy.apply(event["type"], event["object"])


def _key(content: Json) -> str:
    about = content.get("metadata") or {}
    namespace = about.get("namespace")
    name = str(about.get("name", ""))  # bookmarks carry no object
    return f"{namespace}/{name}" if namespace else name


def _version(content: Json) -> str:
    return str((content.get("metadata") or {}).get("resourceVersion", ""))


def _number(version: str) -> int:
    """Return a resource version as a number: revisions of etcd are comparable (KEP-5504)."""
    return int(version) if version.isdecimal() else 0
