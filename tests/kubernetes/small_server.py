"""An API server that keeps objects in memory, and lets a test get in between two calls."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from scripted_server import status_object

Json = dict[str, Any]
COLLECTIONS = frozenset(
    (
        "nodes",
        "pods",
        "configmaps",
        "leases",
        "incidents",
        "jobs",
        "pytorchjobs",
        "rayjobs",
        "workloads",
        "jobsets",
        "trainjobs",
    )
)


class SmallServer(ThreadingHTTPServer):
    """Gets, lists, watches, merges, creates and deletes; selectors select everything."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.changed = threading.Condition()
        self.objects: dict[str, Json] = {}
        self.writes: list[tuple[str, str, Json]] = []
        """Those that were carried out: verb, path and body."""

        self.before: Callable[[str, str], None] = lambda verb, path: None
        """Called with each write, before it is carried out."""

        self.refused: frozenset[str] = frozenset()
        """Collections that may not be read."""

        self.logs: dict[tuple[str, bool], str] = {}
        """Logs by the path of the pod, and whether of the previous run of its container."""

        self.logs_read: list[tuple[str, bool]] = []
        self.history: list[tuple[int, str, Json, str]] = []
        self.is_over = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def version(self) -> int:
        return len(self.history) + 1

    def put(self, path: str, content: Json, kind: str = "MODIFIED") -> Json:
        """An object is there from now on, as it is given."""
        with self.changed:
            about = {**content["metadata"], "resourceVersion": str(self.version)}
            self.objects[path] = stored = {**content, "metadata": about}
            self._note(kind, stored, path)
        return stored

    def merge(self, path: str, patch: Json) -> Json:
        return self.put(path, _merged(self.objects[path], patch))

    def remove(self, path: str) -> None:
        with self.changed:
            gone = self.objects.pop(path)
            gone["metadata"]["resourceVersion"] = str(self.version)
            self._note("DELETED", gone, path)

    def of(self, collection: str) -> list[Json]:
        return [one for path, one in self.objects.items() if _is_in(path, collection)]

    def _note(self, kind: str, content: Json, path: str) -> None:
        self.history.append((self.version, kind, json.loads(json.dumps(content)), path))
        self.changed.notify_all()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: SmallServer

    def do_GET(self) -> None:
        requested = urlsplit(self.path)
        query = parse_qs(requested.query)
        plural = requested.path.rpartition("/")[2]
        if plural in self.server.refused:
            self._answer(403, status_object(403, "Forbidden", f"no {plural} for you"))
        elif plural == "log":
            self._answer_log((requested.path.removesuffix("/log"), "previous" in query))
        elif plural not in COLLECTIONS:
            self._answer_with(requested.path)
        elif "watch" in query:
            self._watch(requested.path, int(query["resourceVersion"][0]))
        else:
            with self.server.changed:
                about = {"resourceVersion": str(self.server.version - 1)}
                self._answer(200, {"metadata": about, "items": self.server.of(requested.path)})

    def do_PATCH(self) -> None:
        path, body = self._write()
        target = path.removesuffix("/status")
        found = self.server.objects.get(target)
        wanted = body.get("metadata", {}).get("resourceVersion")
        if found is not None and wanted not in (None, found["metadata"]["resourceVersion"]):
            self._answer(409, status_object(409, "Conflict", "it has changed"))
            return
        if found is not None:
            self.server.writes.append(("PATCH", path, body))
            body.get("metadata", {}).pop("resourceVersion", None)
            self.server.merge(target, body)
        self._answer_with(target)

    def do_POST(self) -> None:
        path, body = self._write()
        self.server.writes.append(("POST", path, body))
        target = f"{path}/{body['metadata']['name']}"
        self.server.put(target, body, "ADDED")
        self._answer_with(target)

    def do_DELETE(self) -> None:
        path, body = self._write()
        found = self.server.objects.get(path)
        uid = body.get("preconditions", {}).get("uid")
        if found is not None and uid not in (None, found["metadata"]["uid"]):
            self._answer(409, status_object(409, "Conflict", "another has its name"))
            return
        self.server.writes.append(("DELETE", path, body))
        self._answer_with(path)
        if found is not None:
            self.server.remove(path)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""

    def _write(self) -> tuple[str, Json]:
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or "{}")
        path = urlsplit(self.path).path
        self.server.before(self.command, path)
        return path, body

    def _watch(self, collection: str, version: int) -> None:
        self.send_response(200)
        self.end_headers()
        self.close_connection = True
        plural = collection.rpartition("/")[2]
        while not (self.server.is_over or plural in self.server.refused):
            with self.server.changed:
                news = [one for one in self.server.history if one[0] > version]
                if not news:
                    self.server.changed.wait(0.2)
            for number, kind, content, path in news:
                version = number
                if _is_in(path, collection):
                    event = {"type": kind, "object": content}
                    self.wfile.write(json.dumps(event).encode() + b"\n")

    def _answer_with(self, path: str) -> None:
        found = self.server.objects.get(path)
        missing = status_object(404, "NotFound", f"there is no {path}")
        self._answer(404 if found is None else 200, found or missing)

    def _answer_log(self, asked: tuple[str, bool]) -> None:
        self.server.logs_read.append(asked)
        if asked not in self.server.logs:
            self._answer(400, status_object(400, "BadRequest", "there is no such log"))
            return
        self._send(200, "text/plain", self.server.logs[asked].encode())

    def _answer(self, status: int, content: Json) -> None:
        self._send(status, "application/json", json.dumps(content).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def small_server() -> Iterator[SmallServer]:
    server = SmallServer()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.is_over = True
        server.shutdown()
        thread.join()
        server.server_close()


def _is_in(path: str, collection: str) -> bool:
    """Whether an object is of a collection, in one namespace or in all."""
    folder, _, plural = collection.rpartition("/")
    home, _, _ = path.rpartition("/")
    return home == collection or (
        home.startswith(f"{folder}/namespaces/") and home.endswith(f"/{plural}")
    )


def _merged(content: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(content) if isinstance(content, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged
