"""A served console, and those who use it without a browser."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from served_api import Served, private, serving
from written_runs import WrittenRuns

from holdfast.api.identity import token_digest

PEOPLE = ("ada", "bob", "eve", "fay", "ida", "jon", "old", "hal")
TOKENS = {name: f"token-of-{name}-token-of-{name}" for name in PEOPLE}
KEYS = f"""
[[keys]]
access_key_id = "AKIAADAADAADAADAADA2"
secret_access_key = "secret-of-ada-secret-of-ada"
token_sha256 = "{token_digest(TOKENS["ada"])}"
role = "operate"
name = "ada"
[[keys]]
access_key_id = "AKIABOBBOBBOBBOBBOB2"
secret_access_key = "secret-of-bob-secret-of-bob"
token_sha256 = "{token_digest(TOKENS["bob"])}"
role = "view"
name = "bob"
[[keys]]
access_key_id = "AKIAEVEEVEEVEEVEEVE2"
secret_access_key = "secret-of-eve-secret-of-eve"
token_sha256 = "{token_digest(TOKENS["eve"])}"
role = "operate"
name = "eve"
clusters = ["hers"]
operations = ["ReadConsole", "BatchRebootClusterNodes"]
[[keys]]
access_key_id = "AKIAFAYFAYFAYFAYFAY2"
secret_access_key = "secret-of-fay-secret-of-fay"
token_sha256 = "{token_digest(TOKENS["fay"])}"
role = "operate"
name = "fay"
clusters = ["hers"]
[[keys]]
access_key_id = "AKIAIDAIDAIDAIDAIDA2"
secret_access_key = "secret-of-ida-secret-of-ida"
token_sha256 = "{token_digest(TOKENS["ida"])}"
role = "admin"
name = "ida"
[[keys]]
access_key_id = "AKIAJONJONJONJONJON2"
secret_access_key = "secret-of-jon-secret-of-jon"
token_sha256 = "{token_digest(TOKENS["jon"])}"
role = "admin"
name = "jon"
clusters = ["hers"]
[[keys]]
access_key_id = "AKIAOLDOLDOLDOLDOLD2"
secret_access_key = "secret-of-old-secret-of-old"
token_sha256 = "{token_digest(TOKENS["old"])}"
role = "admin"
name = "old"
expires_at = 2026-01-01T00:00:00Z
[[keys]]
access_key_id = "AKIAHALHALHALHALHAL2"
secret_access_key = "secret-of-hal-secret-of-hal"
token_sha256 = "{token_digest(TOKENS["hal"])}"
role = "admin"
name = "hal"
operations = ["ListClusters"]
"""


@dataclass(frozen=True)
class HttpReply:
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
    ) -> HttpReply:
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
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return HttpReply(response.status, found, response.read())

    def log_in(self, person: str) -> "Visitor":
        reply = self.call("POST", "/console/session", {"token": TOKENS[person]})
        assert reply.status == 200, reply.body
        self.cookie = reply.headers["set-cookie"].partition(";")[0]
        self.proof = reply.json["proof"]
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
def site(folder: Path, port: str = "0", *more: str) -> Iterator[Site]:
    """Serve the console of the runs below a folder."""
    config = private(folder / "api.toml", KEYS)
    runs = WrittenRuns(folder / "home", None)
    try:
        with serving(config, "--listen", port, *more, HOLDFAST_HOME=str(runs.home)) as served:
            yield Site(served, runs)
    finally:
        runs.close()
