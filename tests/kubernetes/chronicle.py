"""Everything that an API server saw of some collections, and what is there now."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from controlled import api_of
from real_cluster import Cluster

from holdfast.adapters.kubernetes.client.api import Watch
from holdfast.model.errors import BackendError

Json = dict[str, Any]


@dataclass(frozen=True, order=True)
class Change:
    """One event of a watch."""

    version: int
    """Revision of etcd: it orders changes of all kinds."""

    path: str = field(compare=False)
    is_deletion: bool = field(compare=False)
    content: Json = field(compare=False)

    @property
    def name(self) -> str:
        return self.content["metadata"]["name"]


class Chronicle:
    """Follows collections from ``follow`` to the end, and forgets nothing."""

    def __init__(self, cluster: Cluster) -> None:
        self._api = api_of(cluster)
        self._lock = threading.Lock()
        self._changes: list[Change] = []
        self._now: dict[str, dict[str, Json]] = {}
        self._watches: list[Watch] = []
        self._threads: list[threading.Thread] = []
        self._over = threading.Event()

    def follow(self, *paths: str) -> None:
        for path in paths:
            page = next(self._api.pages(path, {"limit": 500}))
            self._now[path] = {}
            for content in page.items:
                self._note(path, "ADDED", content)
            begun = (path, page.resource_version)
            self._threads.append(threading.Thread(target=self._follow, args=begun, daemon=True))
            self._threads[-1].start()

    def now(self, path: str) -> list[Json]:
        """The objects of a collection."""
        with self._lock:
            return list(self._now[path].values())

    def get(self, path: str, name: str) -> Json | None:
        with self._lock:
            return self._now[path].get(name)

    @property
    def changes(self) -> list[Change]:
        """All there were, in the order in which they happened."""
        with self._lock:
            return sorted(self._changes)

    def close(self) -> None:
        self._over.set()
        for watch in self._watches:
            watch.close()
        for thread in self._threads:
            thread.join()
        self._api.close()

    def _follow(self, path: str, version: str) -> None:
        while not self._over.is_set():
            params = {"resourceVersion": version}
            with (
                suppress(BackendError),
                self._api.watch(path, params, stall=timedelta(minutes=5)) as watch,
            ):
                self._watches.append(watch)
                for event in watch:
                    version = event["object"]["metadata"]["resourceVersion"]
                    self._note(path, event["type"], event["object"])
            time.sleep(0.02)

    def _note(self, path: str, kind: str, content: Json) -> None:
        about = content["metadata"]
        change = Change(int(about["resourceVersion"]), path, kind == "DELETED", content)
        with self._lock:
            self._changes.append(change)
            if change.is_deletion:
                self._now[path].pop(about["name"], None)
            else:
                self._now[path][about["name"]] = content


@contextmanager
def a_chronicle(cluster: Cluster) -> Iterator[Chronicle]:
    chronicle = Chronicle(cluster)
    try:
        yield chronicle
    finally:
        chronicle.close()
