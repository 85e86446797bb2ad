import socket

import pytest

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import run
from tests.engines.ports import free_port


@pytest.fixture
def call(capsys, tmp_path, monkeypatch):
    """Runs the command; returns its exit code and what it says on standard error."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)

    def call(*argv, config=""):
        path = tmp_path / "controller.toml"
        path.write_text(config, encoding="utf-8")
        listen = () if "--listen" in argv else ("--listen", str(free_port()))
        code = run(["controller", *argv, *listen, "--config", str(path)])
        return code, capsys.readouterr().err

    return call


@pytest.fixture
def kubeconfig(tmp_path):
    """Of a cluster that nobody answers for."""
    path = tmp_path / "config"
    path.write_text(
        """
        clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
        users: [{name: u, user: {}}]
        contexts: [{name: x, context: {cluster: c, user: u}}]
        current-context: x
        """,
        encoding="utf-8",
    )
    return str(path)


def test_without_a_cluster_it_says_where_it_looked(call) -> None:
    code, said = call()

    assert code == ExitCode.BAD_INPUT
    assert "kube" in said


def test_a_kubeconfig_that_is_not_there_is_named(call) -> None:
    code, said = call("--kubeconfig", "/nowhere/config")

    assert code == ExitCode.BAD_INPUT
    assert "/nowhere/config" in said


def test_an_unknown_context_is_named(call, kubeconfig) -> None:
    code, said = call("--kubeconfig", kubeconfig, "--context", "prod")

    assert code == ExitCode.BAD_INPUT
    assert "prod" in said


def test_every_mistake_of_the_file_is_reported_at_once(call) -> None:
    code, said = call(config='[nodes]\nmax_unavailble = 2\n[provider]\nreplace = "gcp"')

    assert code == ExitCode.BAD_INPUT
    assert "nodes.max_unavailble: unknown key (did you mean nodes.max_unavailable?)" in said
    assert "provider.replace: expected one of" in said


def test_once_is_for_a_dry_run(call) -> None:
    code, said = call("--once")

    assert code == ExitCode.BAD_INPUT
    assert "--once requires --dry-run" in said


@pytest.mark.parametrize(
    "setting",
    [
        "deep_check_on_start = true",
        "deep_check_pairs = true",
        'deep_check_every = "1d"',
        'silent_agent_action = "deep-check"',
    ],
)
def test_a_deep_check_needs_something_to_run(call, kubeconfig, setting: str) -> None:
    code, said = call("--kubeconfig", kubeconfig, config=f"[nodes]\n{setting}")

    assert code == ExitCode.BAD_INPUT
    assert f"nodes.{setting.partition(' ')[0]} needs kubernetes.check.image" in said


def test_no_agent_is_to_count_as_silent_between_two_heartbeats(call, kubeconfig) -> None:
    code, said = call("--kubeconfig", kubeconfig, config='[nodes]\nheartbeat_timeout = "10s"')

    assert code == ExitCode.BAD_INPUT
    assert "nodes.heartbeat_timeout must be longer than 10s" in said
    assert "got 10s" in said


def test_a_provider_of_slurm_is_refused_on_kubernetes(call, kubeconfig) -> None:
    code, said = call("--kubeconfig", kubeconfig, config='[provider]\nreplace = "slurm-power"')

    assert code == ExitCode.BAD_INPUT
    assert 'provider: "slurm-power" supports only Slurm nodes' in said


def test_a_port_that_is_taken_is_named(call, kubeconfig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]

        code, said = call("--kubeconfig", kubeconfig, "--listen", str(port))

    assert code == ExitCode.BAD_INPUT
    assert f"127.0.0.1:{port}" in said


def test_recovery_is_enabled_by_true_and_false_only(call, kubeconfig, monkeypatch) -> None:
    monkeypatch.setenv("ENABLE_RECOVERY", "yes")

    code, said = call("--kubeconfig", kubeconfig)

    assert code == ExitCode.BAD_INPUT
    assert "ENABLE_RECOVERY: expected true or false in the environment, got 'yes'" in said


PROBING = """
import urllib.error, urllib.request
def build(settings):
    answers = []
    for path in ("healthz", "readyz", "metrics"):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{settings['port']}/{path}") as answer:
                answers.append(answer.status)
        except urllib.error.HTTPError as refused:
            answers.append(refused.code)
    raise ValueError(f"answers: {answers}")
"""


@pytest.mark.parametrize(
    ("is_apart", "answers"), [(False, "[200, 503, 503]"), (True, "[200, 503, 404]")]
)
def test_probes_are_answered_before_the_provider_is_built(
    call, kubeconfig, tmp_path, monkeypatch, is_apart, answers
) -> None:
    (tmp_path / "probing.py").write_text(PROBING, encoding="utf-8")
    about = tmp_path / "probing-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: probing\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[holdfast.providers]\nprobing = probing:build\n")
    monkeypatch.syspath_prepend(tmp_path)
    port = free_port()
    plugin = f'replace = "plugin"\nplugin = {{name = "probing", settings = {{port = "{port}"}}}}'

    config = f"[provider]\n{plugin}"
    if is_apart:
        code, said = call("--kubeconfig", kubeconfig, config=f"probes = {port}\n{config}")
    else:
        code, said = call("--kubeconfig", kubeconfig, "--listen", str(port), config=config)

    assert code == ExitCode.BAD_INPUT
    assert f"answers: {answers}" in said
