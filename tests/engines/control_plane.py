"""A throw-away Kubernetes control plane: the real programs on loopback, ready in seconds.

etcd, kube-apiserver with RBAC, kube-controller-manager and kube-scheduler run as child processes
on data in memory. There is no kubelet: nodes are objects, and ``tests.engines.kubelet`` or KWOK
plays what runs on them. Whoever writes an adapter tests with it, without Docker and without root::

    with ControlPlane(binaries) as cluster:
        subprocess.run(["kubectl", "--kubeconfig", cluster.kubeconfig(), "get", "nodes"])

Needs Linux with ``setpriv`` (util-linux), and the package ``cryptography``.
"""

import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError
from tests.engines.api_connection import ApiConnection, Refused
from tests.engines.kwok_stages import KWOK_STAGES
from tests.engines.ports import free_port
from tests.engines.server_certificate import write_server_certificate

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
SCHEDULER: Final = "kube-scheduler"
KWOK: Final = "kwok"
PROGRAMS: Final = (ETCD, API_SERVER, CONTROLLERS, SCHEDULER)
"""What a control plane consists of, in the order of their start."""

Built = Callable[..., dict[str, Path]]
"""Takes names of programs and returns their paths: the fixture ``built``."""

_DIES_WITH_US: Final = ("setpriv", "--pdeathsig", "SIGKILL")
_MEMORY: Final = Path("/dev/shm")
_HOST: Final = "127.0.0.1"
_POLL_S: Final = 0.02
_TIMEOUT: Final = timedelta(minutes=2)
"""A machine that needs longer to start a program of the control plane is not merely busy."""

FOR_GO: Final = {"GOGC": "400", "GOMAXPROCS": "1"}
"""Less garbage collection, and one thread for Go code.

With one thread instead of two, an API server uses 1.4 s instead of 2.3 s of CPU time to start, and
6,000 requests use 9.9 s instead of 12.0 s, with etcd. kubectl and helm use a fifth less, too.
"""

_ISSUER: Final = "https://kubernetes.default.svc.cluster.local"
_LOG_LINES: Final = 15


class ControlPlane:
    """One control plane; a context manager that leaves nothing behind.

    The programs end with the thread that started them, even if that is killed. Start and restart
    from the main thread.

    Args:
        binaries: program name to executable, for each of ``PROGRAMS``; also ``kwok`` to play nodes
            with it.
        node_grace: a node without a heartbeat for so long becomes ``Unknown`` and is tainted. Long
            by default, so that nodes without a kubelet stay as a test made them.
        flags: program name to more flags for it.
        host: an address of this machine for the API server, where others than this machine's
            processes are to reach it.

    """

    def __init__(
        self,
        binaries: Mapping[str, Path],
        *,
        node_grace: timedelta = timedelta(hours=1),
        flags: Mapping[str, Sequence[str]] | None = None,
        host: str = _HOST,
    ) -> None:
        self.host = host
        self._binaries = binaries
        self._node_grace = node_grace
        self._more_flags = flags or {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._restarted: dict[str, Sequence[str | Path]] = {}
        self.folder = Path(
            tempfile.mkdtemp(prefix="control-plane-", dir=_MEMORY if _MEMORY.is_dir() else None)
        )
        self.port, etcd, self._etcd_peers = (free_port() for _ in range(3))
        self.url = f"https://{host}:{self.port}"
        self.etcd = (_HOST, etcd)
        """Address and port of etcd for its clients, who need no credentials."""

        self._etcd_url = f"http://{_HOST}:{etcd}"
        self.token = secrets.token_urlsafe()
        """Of a user in the group ``system:masters``, who may do everything."""
        self.certificate = self.folder / "certificates" / "apiserver.crt"

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self.close)
            self._write_credentials()
            self.start(*PROGRAMS)
            stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def start(self, *names: str) -> None:
        """Start programs in the given order; returns when each can be used.

        Raises:
            BackendError: one ended or was not ready in time; with the end of its log.

        """
        for name in names:
            is_client = name in (CONTROLLERS, SCHEDULER)
            self.run(name, self._binaries[name], *self._flags(name), has_webhooks=not is_client)
            self._wait_until_ready(name)

    def run(self, name: str, *command: str | Path, has_webhooks: bool = True) -> None:
        """Start another program, such as an operator, with ``KUBECONFIG`` of this cluster.

        It may do everything, ``stop`` ends it and ``log`` has what it writes. One without webhooks
        restarts after an outage, see ``start_api_server``.
        """
        if not has_webhooks:
            self._restarted[name] = command
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [*_DIES_WITH_US, *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={**os.environ, **FOR_GO, "KUBECONFIG": str(self.kubeconfig())},
                start_new_session=True,  # Ctrl-C is for the test, which then ends them
            )

    def stop(self, *names: str) -> None:
        """End programs as a crash would: SIGKILL. What the API server has answered is kept."""
        stopped = [self._processes.pop(name) for name in names]
        for process in stopped:
            process.send_signal(signal.SIGKILL)
        for process in stopped:
            process.wait()

    def close(self) -> None:
        """End everything and remove the data."""
        self.stop(*self._processes)
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop_api_server(self) -> None:
        """Begin an outage: connections break, and new ones are refused."""
        self.stop(API_SERVER)

    def start_api_server(self) -> None:
        """End the outage, at the same address and with the same state.

        Clients without webhooks restart: after some outages in a row they would reconnect after a
        minute only (client-go waits up to 30 s, randomly up to twice that).
        """
        self.start(API_SERVER)
        clients = [name for name in self._restarted if name in self._processes]
        self.stop(*clients)
        for name in clients:
            self.run(name, *self._restarted[name])
            self._wait_until_ready(name)

    def restart_api_server(self) -> None:
        """A short outage."""
        self.stop_api_server()
        self.start_api_server()

    @property
    def programs(self) -> list[str]:
        """Names of the programs that were started and not stopped."""
        return list(self._processes)

    def pid(self, name: str) -> int:
        """The process of a program that runs."""
        return self._processes[name].pid

    def log(self, name: str, lines: int = _LOG_LINES) -> str:
        """The last lines that a program wrote; empty if it never ran."""
        path = self.folder / f"{name}.log"
        if not path.exists():
            return ""
        return "\n".join(path.read_text(encoding="utf-8", errors="replace").splitlines()[-lines:])

    def kubeconfig(self, name: str = "admin", token: str | None = None) -> Path:
        """Write a configuration for clients and return its path.

        Args:
            name: of the user within the file, and of the file.
            token: of that user; by default the one that may do everything.

        """
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": "throw-away", "cluster": cluster}],
            "users": [{"name": name, "user": {"token": token or self.token}}],
            "contexts": [{"name": name, "context": {"cluster": "throw-away", "user": name}}],
        }
        path = self.folder / f"{name}.kubeconfig"
        write_atomically(path, json.dumps(content))  # JSON is YAML
        return path

    def service_account_token(self, namespace: str, name: str, *, pod: str | None = None) -> str:
        """A token of a service account, as a pod of it would find in its file system.

        Args:
            namespace: of the account.
            name: of the account.
            pod: bind it to this pod: it then also names the pod's node.

        """
        spec: dict[str, Any] = {"expirationSeconds": 3600}
        if pod is not None:
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        answer = self.request("POST", path, {"spec": spec})
        return str(answer["status"]["token"])

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """One request as the user who may do everything; see ``ApiConnection.request``."""
        with self.connect() as api:
            return api.request(method, path, body)

    def connect(self) -> ApiConnection:
        """A connection as the user who may do everything, for many requests."""
        return ApiConnection(self.host, self.port, certificate=self.certificate, token=self.token)

    def _write_credentials(self) -> None:
        self.certificate.parent.mkdir()
        write_server_certificate(self.certificate, (self.host, "10.96.0.1"))
        key = ec.generate_private_key(ec.SECP256R1())
        self._key.write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        self._tokens.write_text(f'{self.token},admin,admin,"system:masters"\n', encoding="utf-8")

    @property
    def _key(self) -> Path:
        return self.folder / "service-accounts.key"

    @property
    def _tokens(self) -> Path:
        return self.folder / "tokens.csv"

    def _flags(self, name: str) -> list[str]:
        flags = {
            ETCD: self._etcd_flags,
            API_SERVER: self._api_server_flags,
            CONTROLLERS: self._controller_flags,
            SCHEDULER: self._scheduler_flags,
            KWOK: self._kwok_flags,
        }
        return [*flags[name](), *self._more_flags.get(name, ())]

    def _etcd_flags(self) -> list[str]:
        return [
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={self._etcd_url}",
            f"--advertise-client-urls={self._etcd_url}",
            f"--listen-peer-urls=http://{_HOST}:{self._etcd_peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ]

    def _api_server_flags(self) -> list[str]:
        return [
            f"--etcd-servers={self._etcd_url}",
            f"--bind-address={self.host}",
            f"--advertise-address={self.host}",
            f"--secure-port={self.port}",
            f"--cert-dir={self.certificate.parent}",
            f"--token-auth-file={self._tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--service-account-issuer={_ISSUER}",
            f"--service-account-key-file={self._key}",
            f"--service-account-signing-key-file={self._key}",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--allow-privileged",
            "--endpoint-reconciler-type=none",  # nothing runs that could reach it
            "--profiling=false",
        ]

    def _controller_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig()}",
            f"--node-monitor-grace-period={self._node_grace.total_seconds()}s",
            "--node-monitor-period=0.5s",
            f"--root-ca-file={self.certificate}",  # for pods, as ca.crt beside their token
            "--secure-port=0",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _scheduler_flags(self) -> list[str]:
        return [
            f"--kubeconfig={self.kubeconfig()}",
            "--secure-port=0",
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]

    def _kwok_flags(self) -> list[str]:
        stages = self.folder / "kwok.yaml"
        stages.write_text(KWOK_STAGES, encoding="utf-8")
        return [
            f"--kubeconfig={self.kubeconfig()}",
            f"--config={stages}",
            "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
            "--node-lease-duration-seconds=40",
        ]

    def _wait_until_ready(self, name: str) -> None:
        process = self._processes[name]
        deadline = time.monotonic() + _TIMEOUT.total_seconds()
        while not self._is_ready(name):
            if process.poll() is not None:
                raise BackendError(f"{name} ended with {process.returncode}:\n{self.log(name)}")
            if time.monotonic() > deadline:
                raise BackendError(f"{name} was not ready in {_TIMEOUT}:\n{self.log(name)}")
            time.sleep(_POLL_S)

    def _is_ready(self, name: str) -> bool:
        """Whether others can use it; of those that nobody calls, that it runs."""
        try:
            if name == API_SERVER:
                self.request("GET", "/readyz")
            elif name == CONTROLLERS:
                return self._is_furnished()
        except (OSError, HTTPException, Refused):
            return False
        return self._processes[name].poll() is None

    def _is_furnished(self) -> bool:
        """Whether each namespace has what the controllers put there; before, it takes no pods."""
        furniture = ("serviceaccounts", "default"), ("configmaps", "kube-root-ca.crt")
        with self.connect() as api:
            namespaces = api.request("GET", "/api/v1/namespaces")["items"]
            return all(
                len(
                    api.request("GET", f"/api/v1/{kind}?fieldSelector=metadata.name={name}")[
                        "items"
                    ]
                )
                == len(namespaces)
                for kind, name in furniture
            )
