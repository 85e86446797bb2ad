"""Somebody who is told, on a real port, and may be rude."""

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.ports.fakes import FakeClock


@dataclass
class Told:
    url: str = ""
    answers: list[int] = field(default_factory=list)
    """Statuses to answer with, one a time; 200 after that."""

    posts: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)


@contextlib.contextmanager
def reported(port: int = 0) -> Iterator[Told]:
    seen = Told()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            status = seen.answers.pop(0) if seen.answers else 200
            if status == 200:
                headers = {name.lower(): value for name, value in self.headers.items()}
                seen.posts.append((headers, json.loads(body)))
                seen.bodies.append(body)
            self.send_response(status)
            if status == 429:
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        seen.url = f"http://127.0.0.1:{server.server_port}/hook?token=s3cret"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield seen
        finally:
            server.shutdown()
            thread.join()


CLOCK = FakeClock()
