"""A copy of the objects of one kind, kept up to date by list and watch."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final, Generic, TypeVar

from holdfast.adapters.kubernetes.client.api import Api, Json, Params, Watch
from holdfast.adapters.kubernetes.client.errors import Gone, NotFound
from holdfast.model.errors import BackendError

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_WATCH_S: Final = (240, 360)
"""How long the API server keeps a watch; drawn, so that those of many replicas end apart."""

_STALL: Final = timedelta(minutes=2)
"""The API server sends a bookmark every minute, so this much silence is that of a hung one."""


class Cache(Generic[T]):
    """What is known of a collection; ``version`` is the moment up to which it is known in full."""

    def __init__(self, trim: Callable[[Json], T]) -> None:
        self._trim = trim
        self._ahead: dict[str, int] = {}
        self.objects: dict[str, T] = {}
        self.version = ""

    def replace(self, found: dict[str, T], version: str) -> bool:
        """Take over a list; whether that has changed anything."""
        listed = _number(version)
        self._ahead = {key: ahead for key, ahead in self._ahead.items() if ahead > listed}
        found |= {key: self.objects[key] for key in self._ahead}
        differs = found != self.objects
        self.objects = found
        self.version = version
        return differs

    def apply(self, kind: str, content: Json) -> bool:
        """Take over an event; whether that has changed anything."""
        key, version = _key(content), _version(content)
        self.version = version
        if kind == "BOOKMARK" or _number(version) < self._ahead.get(key, 0):
            return False
        self._ahead.pop(key, None)
        if kind == "DELETED":
            return self.objects.pop(key, None) is not None
        trimmed = self._trim(content)
        differs = key not in self.objects or self.objects[key] != trimmed
        self.objects[key] = trimmed  # even so: what does not count in a comparison may be newer
        return differs

    def learn(self, content: Json) -> None:
        """Take over an object from elsewhere, unless what is known is newer."""
        key, version = _key(content), _number(_version(content))
        # The events know better about everything that they have passed, deletions included.
        if version > max(_number(self.version), self._ahead.get(key, 0)):
            self.objects[key] = self._trim(content)
            self._ahead[key] = version


class Reflector(Generic[T]):
    """Follows a collection in a thread of its own, from ``start`` to ``stop``.

    While the API server is away the copy stays as it was; afterwards it goes on from where it was,
    or, if the API server has forgotten that, compares with a new list. Either way the copy becomes
    what the collection is, deletions included, and never goes back in time.
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
        """Prepare; nothing is sent yet.

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
        self._pause_s = 0.0
        self._heard_at = time.monotonic()
        self._error = ""
        self._is_missing = False
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name=f"reflector {path}", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a call in progress is waited for."""
        self._stopped.set()
        with self._lock:
            watch = self._watch
        if watch is not None:
            watch.close()
        self._thread.join()

    def objects(self) -> Mapping[str, T]:
        """The copy as of one moment, by ``name`` or ``namespace/name``; empty before the first."""
        with self._lock:
            return dict(self._copy.objects)

    @property
    def synced(self) -> bool:
        """The copy was complete at least once."""
        return self._synced.is_set()

    def wait_until_synced(self, timeout: timedelta) -> bool:
        """Whether the copy was complete within ``timeout``."""
        return self._synced.wait(timeout.total_seconds())

    @property
    def age(self) -> timedelta:
        """Time since the API server has last said anything; about a minute if nothing happens."""
        with self._lock:
            return timedelta(seconds=time.monotonic() - self._heard_at)

    @property
    def error(self) -> str:
        """Why the copy is not kept up to date at the moment, empty if it is."""
        with self._lock:
            return self._error

    @property
    def is_missing(self) -> bool:
        """Whether ``error`` is that nobody has defined such objects (any more)."""
        with self._lock:
            return self._is_missing

    def learn(self, content: Json) -> None:
        """Take over the API server's answer to a write, so that who wrote sees it at once."""
        with self._lock:
            self._copy.learn(content)

    def _run(self) -> None:
        is_lost = True
        while not self._stopped.wait(self._pause_s * random.uniform(0.5, 1.0)):  # noqa: S311
            self._pause_s = min(max(2 * self._pause_s, _FIRST_PAUSE_S), _LONGEST_PAUSE_S)
            try:
                if is_lost:
                    self._list()
                    is_lost = False
                self._follow()
            except Gone:
                is_lost = True
            except BackendError as error:
                with self._lock:
                    self._error = str(error)
                    self._is_missing = isinstance(error, NotFound)

    def _list(self) -> None:
        found: dict[str, T] = {}
        version = ""
        for page in self._api.pages(self._path, self._params):
            found.update((_key(content), self._trim(content)) for content in page.items)
            version = page.resource_version
        with self._lock:
            differs = self._copy.replace(found, version)
            self._is_missing = False
            self._heard_at = time.monotonic()
        self._synced.set()
        if differs:
            self._changed()

    def _follow(self) -> None:
        """Apply events until the watch ends."""
        params: Params = {
            **self._params,
            "resourceVersion": self._copy.version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": random.randint(*_WATCH_S),  # noqa: S311
        }
        with self._api.watch(self._path, params, stall=_STALL) as watch:
            with self._lock:
                self._watch = watch
                self._error = ""
            if self._stopped.is_set():
                return
            for event in watch:
                if self._apply(event):
                    self._changed()

    def _apply(self, event: Json) -> bool:
        with self._lock:
            self._heard_at = time.monotonic()
            self._pause_s = 0.0
            return self._copy.apply(event["type"], event["object"])


def _key(content: Json) -> str:
    about = content.get("metadata") or {}
    namespace = about.get("namespace")
    name = str(about.get("name", ""))  # a bookmark has none
    return f"{namespace}/{name}" if namespace else name


def _version(content: Json) -> str:
    return str((content.get("metadata") or {}).get("resourceVersion", ""))


def _number(version: str) -> int:
    """Resource versions are revisions of etcd and may be compared (KEP-5504)."""
    return int(version) if version.isdecimal() else 0
