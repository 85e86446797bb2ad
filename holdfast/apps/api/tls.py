"""TLS of the API: certificate and key from files, which may be renewed while it runs."""

import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from holdfast.model.errors import ConfigError

CHECK_S: Final = 1.0
"""Interval at which a new connection looks for renewed files."""

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Certificate of the server."""

    certificate: Path
    """PEM file with the certificate of the server and the intermediate ones."""

    key: Path
    """PEM file with the private key, without a password. Other users may not have access to it,
    and its group may not write it."""


class TlsContext:
    """The context of a server, with the newest valid certificate."""

    def __init__(self, files: TlsFiles, report: Callable[[str], None]) -> None:
        """Load the files; ``report`` logs a line.

        Raises:
            ConfigError: they cannot be used.

        """
        self._files = files
        self._report = report
        self._stamp = self._read_stamp()
        self._checked_at = time.monotonic()
        self.context = _empty_context()
        self._load(self.context)

    def refresh(self) -> None:
        """Use renewed files for the next connections; invalid ones are reported once."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_S:
            return
        self._checked_at = now
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return
            self._stamp = stamp
            self._load(
                _empty_context()
            )  # a pair that does not match would invalidate the context in use
            self._load(self.context)
        except ConfigError as error:
            self._report(f"{error}; the previous certificate is used")
        else:
            self._report(f"certificate {self._files.certificate} was renewed")

    def _read_stamp(self) -> _Stamp:
        try:
            found = [path.stat() for path in (self._files.certificate, self._files.key)]
        except OSError as error:
            raise ConfigError(f"tls: {error.filename}: {error.strerror}") from error
        if found[1].st_mode & 0o027:
            raise ConfigError(
                f"tls: {self._files.key}: others may read or change the key; run: chmod 600 "
                f"{self._files.key}"
            )
        return tuple((one.st_ino, one.st_mtime_ns, one.st_size) for one in found)

    def _load(self, context: ssl.SSLContext) -> None:
        files = self._files
        try:
            context.load_cert_chain(files.certificate, files.key, password=_no_password)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"tls: {files.certificate} and {files.key} are not a certificate and its key in "
                f"PEM without a password: {error}"
            ) from error
        except OSError as error:
            raise ConfigError(
                f"tls: {files.certificate} or {files.key}: {os.strerror(error.errno or 0)}"
            ) from error


def _empty_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context


def _no_password() -> str:
    raise ValueError("the key has a password")
