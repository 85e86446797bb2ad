"""Exec credential plugins such as ``aws eks get-token``."""

import json
import os
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from holdfast.adapters.kubernetes.client.errors import Unreachable

_GROUP: Final = "client.authentication.k8s.io"
_VERSIONS: Final = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_MARGIN: Final = timedelta(seconds=30)
"""Credentials are renewed this long before they expire, as they might expire in transit."""

_TIMEOUT_S: Final = 60.0
_NEVER: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Credential:
    token: str
    certificate: str
    until: datetime


def _now() -> datetime:
    return datetime.now(UTC)


class ExecPlugin:
    """Runs a command for a token or a certificate and caches both until they expire.

    Its methods raise ``Unreachable`` when the command fails; no other try is of use then.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        environment: Mapping[str, str],
        api_version: str,
        cluster: Mapping[str, Any] | None = None,
        hint: str = "",
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """Create the plugin; no command is run yet.

        Args:
            command: a program and its arguments.
            environment: variables added to the environment of this process.
            api_version: of what it writes, ``client.authentication.k8s.io/v1``.
            cluster: cluster information passed to the plugin; None if it does not request it.
            hint: how a person gets the program, if it is missing.
            clock: the present time.

        Raises:
            ValueError: the version is not known.

        """
        if api_version not in _VERSIONS:
            raise ValueError(f"expected {' or '.join(_VERSIONS)}, got {api_version!r}")
        self._command = list(command)
        self._environment = dict(environment)
        self._api_version = api_version
        self._hint = hint
        self._clock = clock
        spec = {"interactive": False, **({"cluster": cluster} if cluster is not None else {})}
        self._info = json.dumps({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec})
        self._lock = threading.Lock()
        self._credential: _Credential | None = None

    def token(self) -> str:
        """Return the bearer token; empty if the plugin returns none."""
        return self._current().token

    def certificate(self) -> str:
        """Return the PEM of the certificate and its key; empty if the plugin returns none."""
        return self._current().certificate

    def refused(self) -> None:
        """Discard the cached credentials, so that the next use runs the command again."""
        with self._lock:
            self._credential = None

    def _current(self) -> _Credential:
        with self._lock:
            if self._credential is None or self._clock() >= self._credential.until:
                self._credential = self._run()
            return self._credential

    def _run(self) -> _Credential:
        try:
            done = subprocess.run(
                self._command,
                env={**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": self._info},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_TIMEOUT_S,
                encoding="utf-8",
                errors="replace",
                check=False,
            )
        except FileNotFoundError as error:
            raise self._failure(f"is not installed. {self._hint}".rstrip(". ")) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise self._failure(f"could not be run: {error}") from error
        if done.returncode != 0:
            reported = done.stderr.strip()[-500:] or "no error output"
            raise self._failure(f"ended with {done.returncode}: {reported}")
        try:
            return self._read(done.stdout)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._failure(
                f"wrote no ExecCredential of {self._api_version} with a token or a certificate "
                f"and key: {error}"
            ) from error

    def _read(self, text: str) -> _Credential:
        content = json.loads(text)
        if content["kind"] != "ExecCredential" or content["apiVersion"] != self._api_version:
            raise ValueError(f"got {content['kind']} of {content['apiVersion']}")
        status = content["status"]
        parts = [status.get(key) or "" for key in ("clientCertificateData", "clientKeyData")]
        token = str(status.get("token") or "")
        if (parts[0] == "") != (parts[1] == "") or not (token or parts[0]):
            raise ValueError("got neither a token nor a certificate with its key")
        end = status.get("expirationTimestamp")
        return _Credential(
            token=token,
            certificate="\n".join(parts).strip(),
            until=datetime.fromisoformat(end).astimezone(UTC) - _MARGIN if end else _NEVER,
        )

    def _failure(self, what: str) -> Unreachable:
        message = f"no credentials: {self._command[0]} {what}"
        return Unreachable(message, sent=False, permanent=True)
