"""A served console, and those who use it without a browser."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served_api import Served, serving
from written_runs import WrittenRuns

TOKENS = {"ada": "token-of-ada-token-of-ada", "bob": "token-of-bob-token-of-bob"}
KEYS = f"""
[[keys]]
access_key_id = "AKIAADAADAADAADAADA2"
secret_access_key = "secret-of-ada-secret-of-ada"
token = "{TOKENS["ada"]}"
role = "operate"
name = "ada"
[[keys]]
access_key_id = "AKIABOBBOBBOBBOBBOB2"
secret_access_key = "secret-of-bob-secret-of-bob"
token = "{TOKENS["bob"]}"
role = "view"
name = "bob"
"""


@dataclass(frozen=True)
class JobEvent:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Visitor:
    """Somebody with a cookie jar of one place."""

    served: Served
    cookie: str = ""
    proof: str = ""

    def call(
        self,
        method: str,
        path: str,
        content: object = None,
        *,
        raw: bytes | None = None,
        **headers: str | None,
    ) -> JobEvent:
        """A request as our own page makes it; a header of None is left out."""
        own: dict[str, str | None] = {
            "origin": self.served.url,
            "cookie": self.cookie or None,
            "x-holdfast-proof": self.proof or None,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        given = {name: value for name, value in own.items() if value is not None}
        body = raw if raw is not None else json.dumps(content).encode() if content else None
        connection = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=20)
        with contextlib.closing(connection):
            connection.request(method, path, body, given)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return JobEvent(answer.status, found, answer.read())

    def log_in(self, person: str) -> "Visitor":
        reported = self.call("POST", "/console/session", {"token": TOKENS[person]})
        assert reported.status == 200, reported.body
        self.cookie = reported.headers["set-cookie"].partition(";")[0]
        self.proof = reported.json["proof"]
        return self


@dataclass
class Site:
    """A console of runs that are written by hand."""

    served: Served
    runs: WrittenRuns

    def visitor(self, person: str = "") -> Visitor:
        new = Visitor(self.served)
        return new.log_in(person) if person else new


@contextlib.contextmanager
def site(folder: Path, port: str = "0") -> Iterator[Site]:
    """Serve the console of the runs below a folder."""
    config = folder / "api.toml"
    config.write_text(KEYS, encoding="utf-8")
    runs = WrittenRuns(folder / "home", None)
    try:
        with serving(config, "--listen", port, HOLDFAST_HOME=str(runs.home)) as served:
            yield Site(served, runs)
    finally:
        runs.close()
