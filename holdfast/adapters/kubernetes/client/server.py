"""Address of the API server, its certificate authority and the client's credentials."""

import http.client
import os
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from holdfast.adapters.kubernetes.client.errors import Unreachable
from holdfast.model.errors import ConfigError

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Mount path of the token and the certificate authority of a pod's service account."""

_TOKEN_AGE_S: Final = 60.0
"""Cache time of a token, as in client-go; the kubelet renews it after 80 % of its lifetime."""

_UNANSWERED_MS: Final = 5_000
"""TCP user timeout, after which an unresponsive peer is closed with time left for a retry."""

_PROBES: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5}
"""TCP keepalive: seconds of idle time before the first probe, and between two probes.
With the user timeout, an idle watch ends 15 s after its peer has gone."""

_POOL: Final = 8
"""Maximum number of idle connections; more concurrent calls than this are rare."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """API server. Certificates, keys and tokens are read again for each new connection."""

    url: str
    """URL such as ``https://10.0.0.1:443``; its path prefixes that of each call."""

    ca_file: Path | None = None
    ca_data: str = ""
    """Certificate authorities (PEM); without both, the system trust store is used."""

    certificate: Callable[[], str] | None = None
    """Returns the PEM of the client certificate, its chain and its key; empty for none."""

    token: Callable[[], str] | None = None
    """Returns the bearer token, called for each request; empty for none."""

    token_refused: Callable[[], None] | None = None
    """Called when the API server rejected the credentials, so that they are read
    again."""

    tls_server_name: str = ""
    """Name that the server's certificate must have, if not that of ``url``."""

    proxy: str = ""
    """``http://host:port`` of an HTTP CONNECT proxy. That of the environment is ignored: traffic
    within a cluster must not use it."""

    insecure: bool = False
    """Skip verification of the server's certificate."""

    namespace: str = "default"
    """Default namespace."""


class TokenFile:
    """Token file that may be replaced at any time; read once a minute at most."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token = ""
        self._read_at = float("-inf")

    def __call__(self) -> str:
        """Return the token.

        Raises:
            Unreachable: the file cannot be read and no earlier token is cached.

        """
        with self._lock:
            if not self._token or self._clock() - self._read_at >= _TOKEN_AGE_S:
                self._read()
            return self._token

    def refused(self) -> None:
        """Read the file again at the next call."""
        with self._lock:
            self._read_at = float("-inf")

    def _read(self) -> None:
        try:
            self._token = self._path.read_text(encoding="utf-8").strip() or self._token
        except OSError as error:
            if not self._token:
                message = f"cannot read the token in {self._path}: {error.strerror}"
                raise Unreachable(message, sent=False) from error
        self._read_at = self._clock()


def in_cluster(
    environment: Mapping[str, str] = os.environ,
    account: Path = ACCOUNT,
) -> Server:
    """Return the API server of the cluster that this pod runs in.

    Raises:
        ConfigError: this is no pod, or one without a service account's token.

    """
    host = environment.get("KUBERNETES_SERVICE_HOST", "")
    port = environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigError(
            "KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod; "
            "give the API server in the configuration"
        )
    missing = [name for name in ("token", "ca.crt") if not (account / name).is_file()]
    if missing:
        raise ConfigError(
            f"{account} has no {' and no '.join(missing)}: the pod needs a service account with "
            "automountServiceAccountToken"
        )
    token = TokenFile(account / "token")
    own = account / "namespace"
    return Server(
        url=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        ca_file=account / "ca.crt",
        token=token,
        token_refused=token.refused,
        namespace=own.read_text(encoding="utf-8").strip() if own.is_file() else "default",
    )


class Connections:
    """Pool of keep-alive connections to one server; each is used by one thread at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._url = urlsplit(server.url)
        if self._url.scheme not in ("http", "https") or not self._url.hostname:
            raise ConfigError(f"API server: expected https://HOST[:PORT], got {server.url!r}")
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []

    @property
    def prefix(self) -> str:
        """Path prefix of every call."""
        return self._url.path.rstrip("/")

    def take(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return an open connection, an idle one if available.

        Raises:
            Unreachable: it could not be opened; nothing was sent.

        """
        while (connection := self._pop()) is not None:
            if _is_quiet(connection):
                return connection
            connection.close()
        return self.open(timeout_s)

    def open(self, timeout_s: float) -> http.client.HTTPConnection:
        """Open a new connection.

        Raises:
            Unreachable: it could not be opened; nothing was sent.

        """
        connection = self._connection(timeout_s)
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise Unreachable(
                f"{self._server.url} has a certificate that is not trusted: "
                f"{error.verify_message}; check the certificate authority ({self._authority()})",
                sent=False,
                permanent=True,
            ) from error
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"cannot reach {self._server.url}: {error}", sent=False) from error
        return connection

    def release(self, connection: http.client.HTTPConnection) -> None:
        """Return a connection to the pool; its last response was read completely."""
        with self._lock:
            is_pooled = connection.sock is not None and len(self._idle) < _POOL
            if is_pooled:
                self._idle.append(connection)
        if not is_pooled:
            connection.close()

    def clear(self) -> None:
        """Close all idle connections: if one has failed, the others probably have, too."""
        while (connection := self._pop()) is not None:
            connection.close()

    def _pop(self) -> http.client.HTTPConnection | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        url = self._url
        assert url.hostname is not None  # noqa: S101 - seen in __init__
        context, name = None, ""
        if url.scheme == "https":
            context = self._context()
            name = self._server.tls_server_name or url.hostname
        port = url.port or (443 if context else 80)
        proxy = urlsplit(self._server.proxy)
        if not proxy.hostname:
            return _Connection(url.hostname, port, timeout_s, context, name)
        connection = _Connection(proxy.hostname, proxy.port or 80, timeout_s, context, name)
        connection.set_tunnel(url.hostname, port)
        return connection

    def _authority(self) -> str:
        if self._server.ca_file is not None:
            return str(self._server.ca_file)
        return "given as data" if self._server.ca_data else "those of this machine"

    def _context(self) -> ssl.SSLContext:
        server = self._server
        try:
            context = ssl.create_default_context(
                cafile=server.ca_file, cadata=server.ca_data or None
            )
            # Python 3.13 requires extensions that the CAs of many clusters lack.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            if server.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            pem = server.certificate() if server.certificate is not None else ""
            if pem:
                _load_certificate(context, pem)
        except (OSError, ValueError) as error:
            raise Unreachable(
                f"cannot use the certificates for {server.url}: {error}", sent=False, permanent=True
            ) from error
        return context


class _Connection(http.client.HTTPConnection):
    """Connection with TCP keepalive, and TLS."""

    def __init__(
        self, host: str, port: int, timeout_s: float, context: ssl.SSLContext | None, name: str
    ) -> None:
        super().__init__(host, port, timeout=timeout_s)
        self._create_connection = _connected
        self._context = context
        self._name = name

    def connect(self) -> None:
        super().connect()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in {**_PROBES, "TCP_USER_TIMEOUT": _UNANSWERED_MS}.items():
            if hasattr(socket, option):  # Linux only
                self.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        if self._context is not None:
            self.sock = self._context.wrap_socket(self.sock, server_hostname=_encoded(self._name))


def _connected(
    address: tuple[str, int], timeout_s: float, source: tuple[str, int] | None
) -> socket.socket:
    host: Any = _encoded(address[0])  # typed as text, but passed on to ``getaddrinfo``
    return socket.create_connection((host, address[1]), timeout_s, source)


def _encoded(name: str) -> str | bytes:
    """Return ASCII as bytes: Python loads the codec of international names for each text."""
    return name.encode("ascii") if name.isascii() else name


def _load_certificate(context: ssl.SSLContext, pem: str) -> None:
    """Load a PEM; ``SSLContext`` reads only files, so use a private temporary file."""
    import tempfile  # noqa: PLC0415 - most servers authenticate by token

    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
        file.write(pem)
        file.flush()
        context.load_cert_chain(file.name)


def _is_quiet(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing was received: an idle peer sends data only to close the connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)
