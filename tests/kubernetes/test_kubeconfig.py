import base64
import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.kubernetes.client.api import Api, Server
from holdfast.adapters.kubernetes.client.errors import Unreachable
from holdfast.adapters.kubernetes.client.exec_plugin import ExecPlugin
from holdfast.adapters.kubernetes.client.kubeconfig import find_server, read_kubeconfig
from holdfast.model.errors import ConfigError
from tests.engines.control_plane import ControlPlane

V1 = "client.authentication.k8s.io/v1"
URL = "https://10.0.0.1:6443"


def base64_of(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(
    user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None, name: str = "x"
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [{"name": name, "cluster": {"server": URL, **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML
    return path


def server_of(folder: Path, **parts: Any) -> Server:
    return read_kubeconfig([write(folder / "config", config(**parts))])


def token_of(server: Server) -> str:
    assert server.token is not None
    return server.token()


def certificate_of(server: Server) -> str:
    assert server.certificate is not None
    return server.certificate()


# What is read


def test_a_cluster_with_all_that_kubectl_knows(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authority")
    server = server_of(
        tmp_path,
        user={"token": "secret"},
        cluster={
            "certificate-authority": "ca.pem",
            "tls-server-name": "kubernetes",
            "proxy-url": "http://proxy:3128",
            "insecure-skip-tls-verify": True,
        },
    )

    assert server.url == URL
    assert server.ca_file == tmp_path / "ca.pem"
    assert server.tls_server_name == "kubernetes"
    assert server.proxy == "http://proxy:3128"
    assert server.insecure
    assert token_of(server) == "secret"
    assert server.certificate is None


def test_what_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    server = server_of(tmp_path)

    assert server == Server(url=URL)


def test_data_stands_for_files(tmp_path: Path) -> None:
    server = server_of(
        tmp_path,
        user={
            "client-certificate-data": base64_of("certificate"),
            "client-key-data": base64_of("key"),
        },
        cluster={"certificate-authority-data": base64_of("authority")},
    )

    assert server.ca_data == "authority"
    assert certificate_of(server) == "certificate\nkey"


def test_files_are_read_whenever_they_are_used(tmp_path: Path) -> None:
    for name in ("crt", "key", "token"):
        (tmp_path / name).write_text(f"old {name}")
    by_certificate = server_of(tmp_path, user={"client-certificate": "crt", "client-key": "key"})
    by_token = server_of(tmp_path, user={"tokenFile": str(tmp_path / "token"), "token": "unused"})

    assert certificate_of(by_certificate) == "old crt\nold key"
    assert token_of(by_token) == "old token"
    (tmp_path / "crt").write_text("new crt")
    (tmp_path / "token").write_text("new token")
    assert by_token.token_refused is not None
    by_token.token_refused()
    assert certificate_of(by_certificate) == "new crt\nold key"
    assert token_of(by_token) == "new token"


def test_of_several_files_the_first_word_holds(tmp_path: Path) -> None:
    first = config({"token": "first"}, name="a")
    first["current-context"] = ""
    second = config({"token": "second"}, name="a")
    second["users"].append({"name": "b", "user": {"token": "third"}})
    second["contexts"].append({"name": "b", "context": {"cluster": "a", "user": "b"}})
    files = [write(tmp_path / "1", first), write(tmp_path / "2", second)]

    assert token_of(read_kubeconfig(files)) == "first"
    assert token_of(read_kubeconfig(files[::-1])) == "second"
    assert token_of(read_kubeconfig(files, "b")) == "third"


def test_a_context_may_do_without_a_user(tmp_path: Path) -> None:
    content = config()
    content["contexts"][0]["context"] = {"cluster": "x"}

    assert read_kubeconfig([write(tmp_path / "config", content)]) == Server(url=URL)


# Where it is looked for


def test_the_place_is_found_as_kubectl_does(tmp_path: Path) -> None:
    for name in ("named", "listed", "home/.kube/config"):
        write(tmp_path / name, config({"token": name}))
    home = {"HOME": str(tmp_path / "home"), "KUBERNETES_SERVICE_HOST": "10.0.0.9"}
    listed = {**home, "KUBECONFIG": f"{tmp_path / 'absent'}:{tmp_path / 'listed'}"}

    assert token_of(find_server(tmp_path / "named", environment=listed)) == "named"
    assert token_of(find_server(environment=listed)) == "listed"
    assert token_of(find_server(environment=home)) == "home/.kube/config"


def test_without_a_file_the_pods_cluster_is_taken(tmp_path: Path) -> None:
    pod = {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.0.0.9"}

    with pytest.raises(ConfigError, match="service account"):  # found, but this is no pod
        find_server(environment=pod)
    for more in ({"KUBECONFIG": "/absent"}, {}):
        with pytest.raises(ConfigError, match=r"no kubeconfig: /"):
            find_server(context="x" if not more else "", environment={**pod, **more})
    with pytest.raises(ConfigError, match=r"no kubeconfig.*\.kube/config not found; pass"):
        find_server(environment={"HOME": str(tmp_path)})


# What is wrong with it


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "not valid YAML"),
        ("\0", "not valid YAML"),
        ("", "not a kubeconfig"),
        ("[]", "not a kubeconfig"),
        ("{}", "current-context is not set"),
        ("current-context: x", "context 'x' not found; existing: none"),
        (
            "{current-context: x, contexts: [1, {name: y, context: {}}]}",
            "'x' not found; existing: y",
        ),
        ("{current-context: x, contexts: [{name: x, context: {}}]}", "cluster '' not found"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(tmp_path: Path, text: str, expected: str) -> None:
    file = tmp_path / "config"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(ConfigError, match=expected) as reported:
        read_kubeconfig([file])

    assert str(file) in str(reported.value)


def test_a_file_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"{tmp_path}: cannot be read"):
        read_kubeconfig([tmp_path])


@pytest.mark.parametrize(
    ("user", "cluster", "expected"),
    [
        ({}, {"server": ""}, "cluster 'x': server: expected https"),
        ({}, {"server": "10.0.0.1"}, "cluster 'x': server: expected https"),
        ({}, {"server": 3}, "cluster 'x': server: expected text, got 3"),
        ({}, {"certificate-authority": "none"}, "certificate-authority: file"),
        ({}, {"certificate-authority-data": "%"}, "certificate-authority-data: expected base64"),
        ({}, {"proxy-url": "socks5://x"}, "proxy-url: expected http://host:port"),
        ({"tokenFile": "none"}, {}, "user 'x': tokenFile: file"),
        ({"client-key-data": "a2V5"}, {}, "expected a client certificate and its key"),
        ({"client-certificate-data": "a2V5"}, {}, "expected a client certificate and its key"),
        ({"as": "root"}, {}, "user 'x': as: not supported"),
        ({"auth-provider": {"name": "oidc"}}, {}, "auth-provider: not supported"),
        ({"username": "u", "password": "p"}, {}, "username: not supported"),
        ({"exec": {"args": []}}, {}, "exec: expected a command"),
        ({"exec": "command"}, {}, "exec: expected a command"),
        ({"exec": {"command": "c"}}, {}, "apiVersion: expected client.auth.*got ''"),
        (
            {"exec": {"command": "c", "apiVersion": V1, "interactiveMode": "Always"}},
            {},
            "interactiveMode: expected Never or IfAvailable",
        ),
        (
            {"exec": {"command": "c", "apiVersion": V1, "env": ["A=1"]}},
            {},
            "env: expected a list of name and value",
        ),
    ],
)
def test_an_entry_that_cannot_be_used_is_reported_with_its_key(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError, match=expected) as reported:
        server_of(tmp_path, user=user, cluster=cluster)

    assert str(tmp_path / "config") in str(reported.value)


# Programs that give credentials


def script(folder: Path, text: str) -> Path:
    file = folder / "plugin"
    file.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    file.chmod(0o755)
    return file


def answer(folder: Path, status: dict[str, Any]) -> Path:
    """A program that counts its calls and writes an ``ExecCredential``."""
    content = {"kind": "ExecCredential", "apiVersion": V1, "status": status}
    calls = folder / "calls"
    return script(
        folder,
        "import os, sys\n"
        f"with open({str(calls)!r}, 'a') as file:\n"
        "    file.write(os.environ['KUBERNETES_EXEC_INFO'] + '\\n')\n"
        f"text = {json.dumps(content)!r}\n"
        "print(text.replace('ARGS', ' '.join([*sys.argv[1:], os.environ.get('FLAVOR', '')])))\n",
    )


def calls(folder: Path) -> list[Any]:
    return [json.loads(line) for line in (folder / "calls").read_text().splitlines()]


def test_a_program_gives_a_token_until_it_is_refused(tmp_path: Path) -> None:
    answer(tmp_path, {"token": "token ARGS"})
    server = server_of(
        tmp_path,
        user={
            "exec": {
                "apiVersion": V1,
                "command": "./plugin",
                "args": ["a b", "c;d"],
                "env": [{"name": "FLAVOR", "value": "sweet"}],
                "interactiveMode": "IfAvailable",
            }
        },
    )

    assert token_of(server) == token_of(server) == "token a b c;d sweet"
    assert certificate_of(server) == ""
    assert calls(tmp_path) == [
        {"kind": "ExecCredential", "apiVersion": V1, "spec": {"interactive": False}}
    ]
    assert server.token_refused is not None
    server.token_refused()
    assert token_of(server) == "token a b c;d sweet"
    assert len(calls(tmp_path)) == 2


def test_a_program_learns_about_the_cluster_if_it_is_to(tmp_path: Path) -> None:
    answer(tmp_path, {"clientCertificateData": "certificate", "clientKeyData": "key"})
    (tmp_path / "ca").write_text("authority")
    command = {"apiVersion": V1, "command": "./plugin", "provideClusterInfo": True}

    server = server_of(
        tmp_path,
        user={"exec": command},
        cluster={"certificate-authority": "ca", "tls-server-name": "k"},
    )

    assert certificate_of(server) == "certificate\nkey"
    assert token_of(server) == ""
    assert calls(tmp_path)[0]["spec"]["cluster"] == {
        "server": URL,
        "tls-server-name": "k",
        "certificate-authority-data": base64_of("authority"),
    }


def test_a_credential_is_kept_until_shortly_before_its_end(tmp_path: Path) -> None:
    end = datetime(2026, 1, 1, 12, tzinfo=UTC)
    now = [end - timedelta(hours=1)]
    program = answer(tmp_path, {"token": "t", "expirationTimestamp": "2026-01-01T12:00:00Z"})
    plugin = ExecPlugin(
        command=[str(program)], environment={}, api_version=V1, clock=lambda: now[0]
    )

    plugin.token()
    now[0] = end - timedelta(seconds=30, microseconds=1)
    plugin.token()
    assert len(calls(tmp_path)) == 1
    now[0] = end - timedelta(seconds=30)
    plugin.token()
    assert len(calls(tmp_path)) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import sys; sys.exit('log in first')", "ended with 1: log in first"),
        ("import sys; sys.exit(3)", "ended with 3: no error output"),
        ("print('hello')", "wrote no ExecCredential"),
        ("print('[]')", "wrote no ExecCredential"),
        (f"print('{json.dumps({'kind': 'ExecCredential', 'apiVersion': V1})}')", "wrote no"),
        (
            f"""print('{{"kind": "ExecCredential", "apiVersion": "{V1}", "status": {{}}}}')""",
            "got neither a token nor a certificate with its key",
        ),
        (
            f"""print('{{"kind": "ExecCredential", "apiVersion": "{V1}","""
            """ "status": {"token": "t", "clientKeyData": "k"}}')""",
            "got neither a token nor a certificate with its key",
        ),
        (
            """print('{"kind": "ExecCredential", "apiVersion": "v0", "status": {"token": "t"}}')""",
            "got ExecCredential of v0",
        ),
        (
            f"""print('{{"kind": "ExecCredential", "apiVersion": "{V1}","""
            """ "status": {"token": "t", "expirationTimestamp": "soon"}}')""",
            "wrote no ExecCredential",
        ),
    ],
)
def test_a_program_that_fails_is_reported_in_its_own_words(
    tmp_path: Path, text: str, expected: str
) -> None:
    script(tmp_path, text)
    server = server_of(tmp_path, user={"exec": {"apiVersion": V1, "command": "./plugin"}})
    api = Api(server, user_agent="t", field_manager="t")

    with pytest.raises(Unreachable, match=f"plugin .*{expected}") as reported:
        api.get("/api")

    assert reported.value.permanent


def test_a_program_that_is_missing_is_reported_with_how_to_get_it(tmp_path: Path) -> None:
    command = {"apiVersion": V1, "command": "no-such-program-x", "installHint": "Get it at x.io."}
    server = server_of(tmp_path, user={"exec": command})

    with pytest.raises(Unreachable, match=r"no-such-program-x is not installed\. Get it at x\.io$"):
        token_of(server)


# The real API server


def test_the_real_api_server_is_reached_with_a_token_and_with_a_program(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    answer(tmp_path, {"token": control_plane.token})
    by_token = json.loads(control_plane.kubeconfig().read_text())
    by_program = json.loads(json.dumps(by_token))
    by_program["users"][0]["user"] = {"exec": {"apiVersion": V1, "command": "./plugin"}}

    for content in (by_token, by_program):
        server = read_kubeconfig([write(tmp_path / "config", content)])
        api = Api(server, user_agent="t", field_manager="t")
        assert api.get("/api/v1/namespaces/default")["metadata"]["name"] == "default"
        api.close()
