"""Parser of kubeconfig files. Most need PyYAML (extra ``kubernetes``) only if people edited them.

Within a cluster, and so for the agent, ``in_cluster`` needs none of this.
"""

import base64
import binascii
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.adapters.kubernetes.client.server import Server, TokenFile, in_cluster
from holdfast.kit.plain_yaml import NotPlain, parse_plain_yaml
from holdfast.model.errors import ConfigError

if TYPE_CHECKING:  # only a kubeconfig with such a plugin needs it
    from holdfast.adapters.kubernetes.client.exec_plugin import ExecPlugin

_UNKNOWN: Final = ("as", "as-groups", "as-uid", "as-user-extra", "auth-provider", "username")
"""Unsupported keys of a user. Ignoring one would authenticate as another identity."""


class _Entry(NamedTuple):
    """Named cluster, user or context, with the file that defines it."""

    kind: str
    name: str
    file: Path
    content: Mapping[str, Any]

    def text(self, key: str) -> str:
        value = self.content.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.problem(key, f"expected text, got {value!r}")
        return value

    def path(self, key: str) -> Path | None:
        """Path of an existing file; relative paths are resolved against the kubeconfig."""
        text = self.text(key)
        if not text:
            return None
        path = self.file.parent / text
        if not path.is_file():
            raise self.problem(key, f"file {path} not found")
        return path

    def data(self, key: str) -> str:
        """Decoded base64 text."""
        text = self.text(key)
        try:
            return base64.b64decode(text, validate=True).decode()
        except (binascii.Error, ValueError):
            raise self.problem(key, "expected base64") from None

    def problem(self, key: str, what: str) -> ConfigError:
        return ConfigError(f"{self.file}: {self.kind} {self.name!r}: {key}: {what}")


def find_server(
    kubeconfig: Path | None = None,
    context: str = "",
    *,
    environment: Mapping[str, str] = os.environ,
) -> Server:
    """Return the API server that kubectl would use.

    Looks in ``kubeconfig``, else in the files of ``$KUBECONFIG``, else in ``~/.kube/config``, else
    for the cluster that this pod runs in.

    Args:
        kubeconfig: a file.
        context: its name there; the current one if empty.
        environment: with ``KUBECONFIG`` and ``HOME``.

    Raises:
        ConfigError: there is none, or one that cannot be used.

    """
    if kubeconfig is not None:
        return read_kubeconfig([kubeconfig], context)
    named = [Path(part) for part in environment.get("KUBECONFIG", "").split(os.pathsep) if part]
    files = named or [Path(environment.get("HOME", "/")) / ".kube" / "config"]
    there = [file for file in files if file.is_file()]
    if there:
        return read_kubeconfig(there, context)
    if named or context or "KUBERNETES_SERVICE_HOST" not in environment:
        looked = ", ".join(map(str, files))
        raise ConfigError(f"no kubeconfig: {looked} not found; pass --kubeconfig or set KUBECONFIG")
    return in_cluster(environment)


def read_kubeconfig(files: list[Path], context: str = "") -> Server:
    """Return the API server of a context; of two entries with one name the first takes precedence.

    Raises:
        ConfigError: naming the file, the entry and the key.

    """
    contents = [(file, load_kubeconfig(file)) for file in files]
    current = (str(content.get("current-context") or "") for _, content in contents)
    name = context or next(filter(None, current), "")
    if not name:
        raise ConfigError(f"{files[0]}: current-context is not set; pass --context")
    chosen = _entry(contents, "context", name)
    cluster = _entry(contents, "cluster", chosen.text("cluster"))
    user = _entry(contents, "user", chosen.text("user")) if chosen.text("user") else None
    server = Server(
        url=cluster.text("server"),
        ca_file=cluster.path("certificate-authority"),
        ca_data=cluster.data("certificate-authority-data"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy=_proxy(cluster),
        insecure=cluster.content.get("insecure-skip-tls-verify") is True,
        namespace=chosen.text("namespace") or "default",
        **_identity(user, cluster),
    )
    if not server.url.startswith(("http://", "https://")):
        raise cluster.problem("server", f"expected https://..., got {server.url!r}")
    return server


def load_kubeconfig(file: Path) -> dict[str, Any]:
    """Return the content of a kubeconfig.

    Raises:
        ConfigError: it cannot be read, or is not a kubeconfig.

    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not valid YAML: {error}") from error
    try:
        content = parse_plain_yaml(text)
    except NotPlain:
        content = _loaded(text, file)
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: not a kubeconfig")
    return content


def _loaded(text: str, file: Path) -> object:
    import yaml  # noqa: PLC0415 - takes an eighth of the time of a list

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C: ten times as fast
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - it is safe
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: not valid YAML: {' '.join(str(error).split())}") from error


def _entry(contents: Sequence[tuple[Path, Mapping[str, Any]]], kind: str, name: str) -> _Entry:
    known = {}
    for file, content in reversed(contents):
        for named in content.get(f"{kind}s") or ():
            if isinstance(named, dict) and isinstance(named.get(kind), dict):
                known[named.get("name")] = _Entry(kind, str(named.get("name")), file, named[kind])
    if name not in known:
        files = ", ".join(str(file) for file, _ in contents)
        there = ", ".join(map(str, known)) or "none"
        raise ConfigError(f"{files}: {kind} {name!r} not found; existing: {there}")
    return known[name]


def _proxy(cluster: _Entry) -> str:
    proxy = cluster.text("proxy-url")
    if proxy and not proxy.startswith("http://"):
        raise cluster.problem("proxy-url", f"expected http://host:port, got {proxy!r}")
    return proxy


def _identity(user: _Entry | None, cluster: _Entry) -> dict[str, Any]:
    """Return the credential arguments of ``Server``."""
    if user is None:
        return {}
    for key in _UNKNOWN:
        if user.content.get(key):
            raise user.problem(key, "not supported; use a token, a certificate or exec")
    if user.content.get("exec"):
        plugin = _plugin(user, cluster)
        return {
            "token": plugin.token,
            "certificate": plugin.certificate,
            "token_refused": plugin.refused,
        }
    identity: dict[str, Any] = {"certificate": _certificate(user)}
    path, text = user.path("tokenFile"), user.text("token")
    if path is not None:
        file = TokenFile(path)
        identity |= {"token": file, "token_refused": file.refused}
    elif text:
        identity |= {"token": lambda: text}
    return identity


def _certificate(user: _Entry) -> Callable[[], str] | None:
    parts: list[Callable[[], str]] = []
    for key in ("client-certificate", "client-key"):
        data, path = user.data(f"{key}-data"), user.path(key)
        if data:
            parts.append(partial(str, data))
        elif path is not None:
            parts.append(partial(path.read_text, encoding="utf-8"))
    if len(parts) == 1:
        raise user.problem(
            "client-certificate", "expected a client certificate and its key, got one of them"
        )
    return (lambda: "\n".join(part() for part in parts)) if parts else None


def _plugin(user: _Entry, cluster: _Entry) -> "ExecPlugin":
    from holdfast.adapters.kubernetes.client.exec_plugin import ExecPlugin  # noqa: PLC0415 - see above

    content = user.content["exec"]
    if not isinstance(content, dict) or not isinstance(content.get("command"), str):
        raise user.problem("exec", "expected a command")
    settings = _Entry("exec of user", user.name, user.file, content)
    command = settings.text("command")
    if os.sep in command:
        command = str(user.file.parent / command)
    hint = settings.text("installHint")
    if settings.text("interactiveMode") == "Always":
        raise settings.problem(
            "interactiveMode", "expected Never or IfAvailable: Holdfast is not interactive"
        )
    try:
        return ExecPlugin(
            command=[command, *map(str, content.get("args") or ())],
            environment={str(one["name"]): str(one["value"]) for one in content.get("env") or ()},
            api_version=settings.text("apiVersion"),
            cluster=_cluster_info(cluster) if content.get("provideClusterInfo") else None,
            hint=hint,
        )
    except (TypeError, KeyError):
        raise settings.problem("env", "expected a list of name and value") from None
    except ValueError as error:
        raise settings.problem("apiVersion", str(error)) from None


def _cluster_info(cluster: _Entry) -> dict[str, Any]:
    info = {
        key: cluster.content[key]
        for key in (
            "server",
            "tls-server-name",
            "insecure-skip-tls-verify",
            "certificate-authority-data",
            "proxy-url",
        )
        if key in cluster.content
    }
    path = cluster.path("certificate-authority")
    if path is not None:
        info["certificate-authority-data"] = base64.b64encode(path.read_bytes()).decode()
    return info
