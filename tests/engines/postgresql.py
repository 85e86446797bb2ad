"""A throw-away PostgreSQL on this machine, of Debian's packages."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/usr/lib/postgresql")
_START_S: Final = 60.0
_UNPRIVILEGED: Final = "nobody"  # PostgreSQL refuses to run as root


def missing() -> str:
    """Why there can be none; empty if there can."""
    if _programs() is None:
        return "PostgreSQL is not installed: apt-get install postgresql"
    return ""


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of a new, empty database, until the end of the block."""
    programs = _programs()
    assert programs is not None, missing()
    user = _UNPRIVILEGED if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
    place = Path(tempfile.mkdtemp(prefix="holdfast-postgresql-"))
    try:
        shutil.chown(place, user)
        data = place / "data"
        made = subprocess.run(
            [programs / "initdb", "--auth=trust", "--username=holdfast", "--encoding=UTF8",
             "--no-sync", "--pgdata", data],
            check=False, capture_output=True, text=True, user=user, cwd=place,
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        with (place / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", data, "-k", place, "-c", "listen_addresses=",
                 "-c", "fsync=off", "-c", "max_connections=50"],
                stdout=log, stderr=log, user=user, cwd=place,
            )  # fmt: skip
        try:
            _wait(place, server)
            yield f"postgresql+psycopg://holdfast@/postgres?host={place}"
        finally:
            server.send_signal(signal.SIGINT)  # does not wait for those who are connected
            server.wait()
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _programs() -> Path | None:
    found = sorted(_ROOT.glob("*/bin/postgres")) if _ROOT.is_dir() else []
    return found[-1].parent if found else None


def _wait(place: Path, server: "subprocess.Popen[bytes]") -> None:
    """Wait until it reports that it is ready: its socket is there a little before."""
    deadline = time.monotonic() + _START_S
    log = place / "log"
    while b"ready to accept connections" not in log.read_bytes():
        assert server.poll() is None, log.read_text(encoding="utf-8")
        assert time.monotonic() < deadline, log.read_text(encoding="utf-8")
        time.sleep(0.02)
