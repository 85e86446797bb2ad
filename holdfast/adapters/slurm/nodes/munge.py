"""Credentials of munge, by its library, which every host with Slurm's ``auth/munge`` has."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.slurm.commands.conf_file import conf_settings, munge_socket, slurm_user
from holdfast.adapters.slurm.nodes.signatures import Credential, CredentialsUnavailable, Trust
from holdfast.model.errors import ConfigError

_LIBRARY: Final = "libmunge.so.2"
_OPT_ENCODE_TIME: Final = 6
_OPT_SOCKET: Final = 8
_SOCKET_ERRORS: Final = frozenset((1, 5, 6, 7))
"""Internal error, out of memory, socket and timeout of ``munge.h``: errors of munged itself."""

_STILL_GENUINE: Final = frozenset((15, 16, 17))
"""Expired, from the future, and decoded before on this host: the caller judges the age itself."""


class Munge:
    """Encodes and decodes through the munged of this host; each call takes about 0.1 ms."""

    def __init__(self, socket: str = "") -> None:
        """Use the munged at ``socket``; empty for munge's default.

        Raises:
            ConfigError: the library is not installed.

        """
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise ConfigError(
                f"{_LIBRARY} not found: Slurm reports are signed with munge; install libmunge2"
                " (Debian, Ubuntu) or munge-libs (RHEL)"
            ) from error
        self._library.munge_ctx_create.restype = ctypes.c_void_p
        self._library.munge_strerror.restype = ctypes.c_char_p
        self._free = ctypes.CDLL(None).free
        self._free.argtypes = [ctypes.c_void_p]
        self._socket = socket.encode()

    def encode(self, payload: bytes) -> str:
        """See ``Credentials.encode``."""
        found = ctypes.c_void_p()
        with self._context() as context:
            code = self._library.munge_encode(
                ctypes.byref(found), context, payload, ctypes.c_int(len(payload))
            )
            try:
                if code:
                    raise CredentialsUnavailable(f"munge: {self._text(code)}")
                return (ctypes.cast(found, ctypes.c_char_p).value or b"").decode("ascii")
            finally:
                self._free(found)

    def decode(self, credential: str) -> Credential:
        """See ``Credentials.decode``."""
        buffer, length = ctypes.c_void_p(), ctypes.c_int()
        uid, gid = ctypes.c_uint32(), ctypes.c_uint32()
        with self._context() as context:
            code = self._library.munge_decode(
                credential.encode("ascii", "replace"), context, ctypes.byref(buffer),
                ctypes.byref(length), ctypes.byref(uid), ctypes.byref(gid),
            )  # fmt: skip
            try:
                if code in _SOCKET_ERRORS:
                    raise CredentialsUnavailable(f"munge: {self._text(code)}")
                if code and code not in _STILL_GENUINE:
                    raise ValueError(f"the signature is not valid here: {self._text(code)}")
                encoded_at = ctypes.c_long()
                self._library.munge_ctx_get(context, _OPT_ENCODE_TIME, ctypes.byref(encoded_at))
                return Credential(
                    payload=ctypes.string_at(buffer, length.value) if buffer else b"",
                    uid=uid.value,
                    encoded_at=datetime.fromtimestamp(encoded_at.value, UTC),
                )
            finally:
                self._free(buffer)

    @contextmanager
    def _context(self) -> Iterator[Any]:
        context = ctypes.c_void_p(self._library.munge_ctx_create())
        try:
            if self._socket:
                self._library.munge_ctx_set(context, _OPT_SOCKET, ctypes.c_char_p(self._socket))
            yield context
        finally:
            self._library.munge_ctx_destroy(context)

    def _text(self, code: int) -> str:
        return str(self._library.munge_strerror(code).decode("utf-8", "replace"))


def munge_of(conf: Path | None) -> Munge:
    """Return the munge of the cluster of ``conf``, or that of the environment.

    Raises:
        ConfigError: the library is not installed.

    """
    return Munge(munge_socket(conf_settings(conf)))


def trust_of(conf: Path | None) -> Trust:
    """Return whose reports are accepted: those of root, SlurmUser and the user of this process.

    Raises:
        ConfigError: the library of munge is not installed.

    """
    users = frozenset((0, os.geteuid(), slurm_user(conf_settings(conf))))
    return Trust(credentials=munge_of(conf), users=users)
