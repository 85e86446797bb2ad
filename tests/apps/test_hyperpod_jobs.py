"""Jobs as HyperPod's command line starts them: what is read, made of it, and refused."""

import json
from pathlib import Path

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.hyperpod.config_file import read_config
from holdfast.apps.hyperpod.job_request import Claim, HostVolume, JobRequest
from holdfast.apps.hyperpod.manifest import manifest_of
from holdfast.apps.main import run
from holdfast.model.errors import ConfigError
from holdfast.model.names import Labels

LABELS = Labels()
CONFIG = """\
defaults:
  - override hydra/job_logging: stdout
hydra: {run: {dir: .}, output_subdir: null}
training_cfg:
  entry_script: /opt/mnist.py
  script_args: [{--epochs: 3}, {--amp: null}, {--lr: 0.1}]
  run: {name: mnist, nodes: 2, ntasks_per_node: 8}
cluster:
  cluster_type: k8s
  instance_type: ml.p5.48xlarge
  cluster_config:
    annotations:
      sagemaker.amazonaws.com/enable-job-auto-resume: True
      sagemaker.amazonaws.com/job-max-retry-count: 3
    service_account_name: trainer
    persistent_volume_claims: [{claimName: fsx, mountPath: /fsx}]
    namespace: kubeflow
    custom_labels: {kueue.x-k8s.io/queue-name: team-a, team: a}
    priority_class_name: high
    volumes: [{volumeName: local, hostPath: /opt, mountPath: /mnt}]
    label_selector:
      required: {sagemaker.amazonaws.com/node-health-status: [Schedulable]}
      preferred: {sagemaker.amazonaws.com/deep-health-check-status: [Passed]}
      weights: [50]
    pullPolicy: Always
    restartPolicy: OnFailure
    scheduler_type: Kueue
base_results_dir: ./result
container: registry/mnist:1
env_vars: {NCCL_DEBUG: INFO, DEBUG: true}
"""
LEAST = [
    "--job-name", "a", "--image", "i", "--entry-script", "t.py",
    "--instance-type", "ml.g5.xlarge", "--node-count", "1",
]  # fmt: skip


def a_file(tmp_path: Path, text: str = CONFIG) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def a_wish(**changes) -> JobRequest:
    least = {
        "name": "a", "image": "i", "entry_script": "t.py", "instance_type": "g5.xlarge", "nodes": 1,
    }  # fmt: skip
    return JobRequest(**{**least, **changes})


@pytest.fixture
def kubeconfig(tmp_path, monkeypatch) -> Path:
    """Of a cluster that nobody reaches: what is only shown needs none."""
    path = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "ml"}}],
        "clusters": [cluster],
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setenv("KUBECONFIG", str(path))
    return path


def shown(capsys, *argv: str):
    assert run(["hyperpod", "start-job", "--dry-run", *argv]) == ExitCode.OK
    return json.loads(capsys.readouterr().out)


# the file


def test_the_file_of_hyperpods_examples_is_read(tmp_path) -> None:
    request = JobRequest(**read_config(a_file(tmp_path)))

    assert (request.name, request.nodes, request.tasks_per_node) == ("mnist", 2, 8)
    assert request.script_args == ("--epochs", "3", "--amp", "--lr", "0.1")
    assert (request.auto_resume, request.max_retry) == (True, 3)
    assert (request.queue, request.labels) == ("team-a", {"team": "a"})
    assert request.environment == {"NCCL_DEBUG": "INFO", "DEBUG": "true"}
    assert request.volumes == (HostVolume(name="local", host_path="/opt", mount_path="/mnt"),)
    assert request.claims == (Claim(name="fsx", mount_path="/fsx"),)
    assert (request.namespace, request.pull_policy, request.weights) == (
        "kubeflow",
        "Always",
        (50,),
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("nodes: 2", "nodes: two", "training_cfg.run.nodes: expected a whole number, got 'two'"),
        ("container: registry/mnist:1", "container: [1]", "container: expected text"),
        ("weights: [50]", "weights: [a]", "weights: expected a list of whole numbers"),
        ("job-max-retry-count: 3", "job-max-retry-count: -3", "expected a number, got -3"),
        ("      sagemaker.amazonaws.com/job-max-retry-count: 3\n", "", "expected both"),
        ("mountPath: /fsx", "mount: /fsx", "claimName, mountPath each"),
        ("script_args: [{--epochs: 3}", "script_args: [3", "script_args: expected a list"),
        ("defaults:", "defaults: {", "not valid YAML"),
    ],
)
def test_a_mistake_in_the_file_is_reported_with_its_place(tmp_path, old, new, said) -> None:
    assert old in CONFIG
    with pytest.raises(ConfigError) as refused:
        read_config(a_file(tmp_path, CONFIG.replace(old, new)))

    assert said in str(refused.value)


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
@settings(max_examples=examples(100))
def test_whatever_the_file_holds_is_read_or_refused(tmp_path_factory, content) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    try:
        read_config(path)
    except ConfigError as refused:
        assert str(path) in str(refused)  # noqa: PT017 - most content is refused, not all


# the object


def test_the_object_asks_for_all_devices_of_its_nodes_and_for_healthy_ones(tmp_path) -> None:
    job = manifest_of(JobRequest(**read_config(a_file(tmp_path))), "kubeflow")

    assert job["metadata"]["annotations"] == {
        LABELS.enable_job_auto_resume: "true",
        LABELS.job_max_retry_count: "3",
    }
    worker = job["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert (worker["replicas"], worker["restartPolicy"]) == (2, "OnFailure")
    assert job["spec"]["nprocPerNode"] == "8"
    pod = worker["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"][:2] == ["torchrun", "/opt/mnist.py"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
    affinity = pod["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    required = {one["key"]: one["values"] for one in term["matchExpressions"]}
    assert required[LABELS.node_health_status] == ["Schedulable"]
    assert required["node.kubernetes.io/instance-type"] == ["ml.p5.48xlarge", "p5.48xlarge"]
    [preferred] = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred["weight"] == 50
    assert job["metadata"]["labels"] == {"team": "a", "kueue.x-k8s.io/queue-name": "team-a"}
    mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    assert mounted == {"local": "/mnt", "fsx": "/fsx"}
    assert [set(one) for one in pod["volumes"]] == [
        {"name", "hostPath"},
        {"name", "persistentVolumeClaim"},
    ]


def test_a_job_without_requests_prefers_nodes_that_have_passed_and_asks_for_no_resume() -> None:
    job = manifest_of(a_wish(), "ml")

    assert job["metadata"]["annotations"] == {}
    affinity = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["affinity"]
    [preferred] = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    [expression] = preferred["preference"]["matchExpressions"]
    assert (preferred["weight"], expression["key"]) == (100, LABELS.deep_health_check_status)


@pytest.mark.parametrize(
    ("namespace", "changes", "queue"),
    [
        ("hyperpod-ns-a", {}, "hyperpod-ns-a-localqueue"),
        ("hyperpod-ns-a", {"queue": "q"}, "q"),
        ("hyperpod-ns-a", {"scheduler": "None", "queue": "q"}, None),
        ("ml", {}, None),
        ("ml", {"scheduler": "Kueue", "queue": "q"}, "q"),
    ],
)
def test_a_job_goes_to_the_queue_of_its_namespace(namespace, changes, queue) -> None:
    labels = manifest_of(a_wish(**changes), namespace)["metadata"]["labels"]

    assert labels.get("kueue.x-k8s.io/queue-name") == queue


# the command


def test_options_win_over_the_file(tmp_path, kubeconfig, capsys) -> None:
    job = shown(
        capsys, "--config-file", str(a_file(tmp_path)), "--node-count", "5", "--max-retry", "7",
        "-n", "other",
    )  # fmt: skip

    assert job["metadata"]["namespace"] == "other"
    assert job["spec"]["pytorchReplicaSpecs"]["Worker"]["replicas"] == 5
    assert job["metadata"]["annotations"][LABELS.job_max_retry_count] == "7"


def test_options_alone_make_a_job(kubeconfig, capsys) -> None:
    job = shown(
        capsys, *LEAST, "--auto-resume", "true", "--script-args", "[--lr 1e-3]",
        "--environment", "A=1,B=x=y", "--volumes", "v:/h:/m", "--label-selector",
        '{"required": {"zone": ["a", "b"]}}',
    )  # fmt: skip

    assert job["metadata"]["namespace"] == "ml"
    assert job["metadata"]["annotations"][LABELS.job_max_retry_count] == "1"
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["torchrun", "t.py", "--lr", "1e-3"]
    assert container["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "x=y"}]
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    keys = {one["key"] for one in required["nodeSelectorTerms"][0]["matchExpressions"]}
    assert keys == {"zone", "node.kubernetes.io/instance-type"}


def test_only_nodes_that_have_passed_can_be_wanted(kubeconfig, capsys) -> None:
    job = shown(capsys, *LEAST, "--deep-health-check-passed-nodes-only", "true")

    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    affinity = pod["affinity"]["nodeAffinity"]
    assert set(affinity) == {"requiredDuringSchedulingIgnoredDuringExecution"}


def test_no_resume_takes_the_retries_of_the_file_away(tmp_path, kubeconfig, capsys) -> None:
    path = str(a_file(tmp_path))

    assert (
        shown(capsys, "--config-file", path, "--auto-resume", "false")["metadata"]["annotations"]
        == {}
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "--job-name: missing"),
        ([*LEAST, "--max-retry", "2"], "Please enable 'auto_resume' with 'max_retry' option."),
        (
            [*LEAST, "--auto-resume", "true", "--restart-policy", "Never"],
            "please ensure the 'restart-policy' is 'OnFailure'",
        ),
        ([*LEAST, "--node-count", "0"], "node_count: must be 1 or more, got 0"),
        ([*LEAST, "--volumes", "x"], "NAME:HOST_PATH:MOUNT_PATH"),
        ([*LEAST, "--environment", "x"], "expected KEY=VALUE"),
        ([*LEAST, "--label-selector", "[1]"], "required"),
        (["--config-file", "missing.yaml"], "missing.yaml"),
    ],
)
def test_what_cannot_be_started_is_reported_and_not_submitted(
    kubeconfig, capfd, options, said
) -> None:
    assert run(["hyperpod", "start-job", *options]) == ExitCode.BAD_INPUT
    output = capfd.readouterr()
    assert said in " ".join(output.err.replace("│", " ").split())
    assert output.out == ""
