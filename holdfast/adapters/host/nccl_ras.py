"""Asks NCCL's RAS subsystem about the communicators of a job, over its socket.

The protocol has lines of text (``src/ras/client_support.cc`` of NCCL, 2.24 and newer); the JSON
format needs 2.28.7. It is written to the documentation: no real NCCL was available to test it.
"""

import socket
import time
from collections.abc import Mapping
from typing import Any, Final

from holdfast.decisions.ras_verdict import RasCommunicator, RasRank
from holdfast.kit.bounded_files import parse_json

_ADDRESS: Final = "localhost:28028"
_PROTOCOL: Final = 2
_TIME_S: Final = 6.0
"""Maximum time of a report, with the time that NCCL waits for other nodes."""

_COLLECTING_S: Final = 3
"""Time that NCCL waits for each leg of its collection; 5 s by default."""

_LARGEST: Final = 1 << 26
_RANKS_LIMIT: Final = 100_000
_COUNTS: Final = 16


class NoReport(Exception):
    """RAS is off, does not respond, or has another format; the message is the reason."""


def read_report(environment: Mapping[str, str]) -> tuple[RasCommunicator, ...]:
    """Return the communicators of the job at the address that ranks use.

    Args:
        environment: of the ranks; ``NCCL_RAS_ADDR`` and ``NCCL_RAS_ENABLE`` count.

    Raises:
        NoReport: there is no report.

    """
    if environment.get("NCCL_RAS_ENABLE", "1").strip() == "0":
        raise NoReport("NCCL_RAS_ENABLE is 0")
    host, _, port = (environment.get("NCCL_RAS_ADDR") or _ADDRESS).rpartition(":")
    if not (host and port.isascii() and port.isdecimal()):
        raise NoReport("NCCL_RAS_ADDR is not HOST:PORT")
    until = time.monotonic() + _TIME_S
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _TIME_S) as connection:
            return _communicators(_Session(connection, until).status())
    except (OSError, OverflowError) as error:
        raise NoReport(f"{host}:{port}: {error}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise NoReport(f"{host}:{port}: unknown format: {error}") from error


class _Session:
    def __init__(self, connection: socket.socket, until: float) -> None:
        self._connection, self._until = connection, until
        self._left = b""

    def status(self) -> Any:
        """Return the status of all ranks, parsed."""
        if not self._ask(f"CLIENT PROTOCOL {_PROTOCOL}").startswith("SERVER PROTOCOL"):
            raise NoReport("not NCCL's RAS")
        for request in (f"TIMEOUT {_COLLECTING_S}", "SET FORMAT json"):
            answer = self._ask(request)
            if answer != "OK":
                raise NoReport(f"{request}: {answer[:100]}: the JSON format needs NCCL 2.28.7")
        self._send("VERBOSE STATUS")
        text = self._left
        while data := self._receive():
            text += data
            if len(text) > _LARGEST:
                raise NoReport(f"the report is larger than {_LARGEST} bytes")
        return parse_json(text)

    def _ask(self, request: str) -> str:
        self._send(request)
        while b"\n" not in self._left:
            data = self._receive()
            if not data or len(self._left) > _LARGEST:
                raise NoReport(f"{request}: no answer")
            self._left += data
        line, _, self._left = self._left.partition(b"\n")
        return line.decode("utf-8", "replace").strip()

    def _send(self, line: str) -> None:
        self._bound()
        self._connection.sendall(f"{line}\n".encode("ascii"))

    def _receive(self) -> bytes:
        self._bound()
        return self._connection.recv(1 << 16)

    def _bound(self) -> None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError(f"no report within {_TIME_S:g} s")
        self._connection.settimeout(left_s)


def _communicators(document: Any) -> tuple[RasCommunicator, ...]:
    found = []
    left = _RANKS_LIMIT
    for one in document["communicators"]:
        present = [_rank(rank) for rank in one.get("ranks", ())[:left]]
        missing = [_rank(rank, is_missing=True) for rank in one.get("missing_ranks", ())[:left]]
        left = max(0, left - len(present) - len(missing))
        ranks = sorted((*present, *missing), key=lambda rank: rank.rank)
        found.append(RasCommunicator(size=int(one["size"]), ranks=tuple(ranks)))
    return tuple(found)


def _rank(plain: Mapping[str, Any], *, is_missing: bool = False) -> RasRank:
    counts = plain.get("collective_counts") or {}
    return RasRank(
        rank=int(plain["rank"]),
        pid=int(plain.get("pid", 0)),
        is_missing=is_missing,
        counts={str(kind)[:40]: int(count) for kind, count in [*counts.items()][:_COUNTS]},
    )
