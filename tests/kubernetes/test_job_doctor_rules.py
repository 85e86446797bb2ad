"""Each rule on jobs reports its violation, and the remedy fixes it."""

import copy
import json
import re
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest
import yaml
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.jobs.doctor_rules import RULES
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.adapters.kubernetes.jobs.pod_templates import JOB_TEMPLATES
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.kubernetes.doctor import diagnose_manifest, diagnose_object
from holdfast.apps.main import run
from holdfast.decisions.doctor import Diagnostic, RuleSeverity
from holdfast.model.errors import ConfigError
from holdfast.model.names import Labels

NAMES = Labels()
OF_KIND = {kind.kind: kind for kind in KINDS}
ANNOTATIONS = {NAMES.enable_job_auto_resume: "true", NAMES.job_max_retry_count: "5"}


def pods() -> dict[str, Any]:
    return {
        "nodeSelector": {NAMES.node_health_status: "Schedulable"},
        "containers": [{"name": "main", "command": ["python", "train.py"]}],
        "volumes": [
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
        ],
    }


def kubeflow(kind: str, field: str, *names: str, **policy: Any) -> dict[str, Any]:
    replicas = {
        name: {"replicas": 2, "restartPolicy": "OnFailure", "template": {"spec": pods()}}
        for name in names
    }
    return a_job(kind, {"runPolicy": {"cleanPodPolicy": "Running", **policy}, field: replicas})


def batch() -> dict[str, Any]:
    counts = {"completionMode": "Indexed", "completions": 4, "parallelism": 4}
    return {**counts, "backoffLimit": 1000, "template": {"spec": pods()}}


def a_job(kind: str, spec: dict[str, Any]) -> dict[str, Any]:
    about = {"name": "llama", "namespace": "team", "annotations": dict(ANNOTATIONS)}
    one = OF_KIND[kind]
    return {"apiVersion": one.api_version, "kind": kind, "metadata": about, "spec": spec}


def ray() -> dict[str, Any]:
    return {
        "headGroupSpec": {"template": {"spec": pods()}},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": {"spec": pods()}}],
    }


HYPERPOD = "HyperPodPyTorchJob"
HEALTHY = {
    "PyTorchJob": kubeflow("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker"),
    "MPIJob": kubeflow("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker", backoffLimit=100),
    "Job": a_job("Job", batch()),
    "JobSet": a_job("JobSet", {"replicatedJobs": [{"template": {"spec": batch()}} for _ in "ab"]}),
    "RayCluster": a_job("RayCluster", ray()),
    HYPERPOD: a_job(
        HYPERPOD, {"replicaSpecs": [{"name": "pod", "replicas": 2, "template": {"spec": pods()}}]}
    ),
    "RayJob": a_job(
        "RayJob", {"rayClusterSpec": ray(), "shutdownAfterJobFinishes": True, "backoffLimit": 3}
    ),
}
PODS = {
    "PyTorchJob": "spec.pytorchReplicaSpecs.Worker.template.spec",
    "MPIJob": "spec.mpiReplicaSpecs.Worker.template.spec",
    "Job": "spec.template.spec",
    "JobSet": "spec.replicatedJobs[1].template.spec.template.spec",
    "RayCluster": "spec.workerGroupSpecs[0].template.spec",
    HYPERPOD: "spec.replicaSpecs[0].template.spec",
    "RayJob": "spec.rayClusterSpec.headGroupSpec.template.spec",
}
POLICY = {
    "PyTorchJob": "spec.runPolicy",
    "MPIJob": "spec.runPolicy",
    "Job": "spec",
    "JobSet": "spec",
}
MAKER = {
    "PyTorchJob": "spec.pytorchReplicaSpecs.Worker",
    "Job": "spec",
    "JobSet": "spec.replicatedJobs[1].template.spec",
}
KEY = re.compile(r'\["([^"]+)"\]|\[(\d*)\]|([^.\[\]]+)')


def changed(job: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """The object with one line written, or taken out."""
    job = copy.deepcopy(job)
    keys = [named or (plain if plain else index) for named, index, plain in KEY.findall(path)]
    at: Any = job
    for key, following in pairwise(keys):
        empty: Any = [] if following == "" else {}
        at = at[int(key)] if isinstance(at, list) else at.setdefault(key, empty)
    if isinstance(at, list):
        at.append(value)
    elif value is None:
        at.pop(keys[-1], None)
    else:
        at[keys[-1]] = value
    return job


def diagnostics(job: dict[str, Any]) -> tuple[Diagnostic, ...]:
    return diagnose_object(OF_KIND[job["kind"]], job).diagnostics


def on(key: str) -> str:
    return f'metadata.annotations["{key}"]'


RETRIES = on(NAMES.job_max_retry_count)
SWITCH = on(NAMES.enable_job_auto_resume)
SELECTOR = f'nodeSelector["{NAMES.node_health_status}"]'
TORCHRUN = [{"name": "main", "command": ["sh", "-c", "torchrun --nnodes 2 train.py"]}]
FAILS_JOB = {"rules": [{"action": "FailJob"}]}
ALL_KINDS = tuple(HEALTHY)
SWITCHED = tuple(kind for kind in HEALTHY if kind != HYPERPOD)
E, W, N = RuleSeverity.ERROR, RuleSeverity.WARNING, RuleSeverity.NOTE

CASES = [
    *((kind, SWITCH, None, "auto-resume-off", E) for kind in SWITCHED),
    *((kind, SWITCH, "False", "auto-resume-off", E) for kind in SWITCHED),
    *((kind, SWITCH, "yes", "invalid-annotation", E) for kind in SWITCHED),
    (HYPERPOD, "spec.elasticPolicy", {"minReplicas": 1}, "cannot-restart", E),
    (HYPERPOD, "spec.runPolicy.jobMaxRetryCount", 0, "no-retries", W),
    *((kind, RETRIES, "-1", "invalid-annotation", W) for kind in ALL_KINDS),
    *((kind, RETRIES, None, "no-retries", N) for kind in ALL_KINDS),
    *((kind, RETRIES, "0", "no-retries", W) for kind in ALL_KINDS),
    *((kind, f"{PODS[kind]}.{SELECTOR}", None, "node-selector", W) for kind in ALL_KINDS),
    *((kind, f"{PODS[kind]}.{SELECTOR}", "Unschedulable", "node-selector", E)
      for kind in ALL_KINDS),
    *((kind, f"{PODS[kind]}.containers", TORCHRUN, "rendezvous-timeout", W) for kind in ALL_KINDS),
    *((kind, f"{PODS[kind]}.terminationGracePeriodSeconds", 0, "grace-period", E)
      for kind in ALL_KINDS),
    *((kind, f"{PODS[kind]}.terminationGracePeriodSeconds", 301, "grace-period", W)
      for kind in ALL_KINDS),
    *((kind, f"{POLICY[kind]}.ttlSecondsAfterFinished", 3599, "time-to-live", N)
      for kind in POLICY),
    *(("PyTorchJob", "spec.pytorchReplicaSpecs.Master.restartPolicy", policy, "restart-policy", E)
      for policy in ("Never", "ExitCode", "Always")),
    ("PyTorchJob", "spec.runPolicy.backoffLimit", 0, "backoff-limit", E),
    ("PyTorchJob", "spec.runPolicy.backoffLimit", 9, "backoff-limit", W),
    ("MPIJob", "spec.runPolicy.backoffLimit", 8, "backoff-limit", W),
    ("MPIJob", "spec.runPolicy.backoffLimit", None, "backoff-limit", W),
    ("RayJob", "spec.backoffLimit", None, "backoff-limit", W),
    ("RayJob", "spec.backoffLimit", 2, "backoff-limit", W),
    ("RayJob", "spec.shutdownAfterJobFinishes", None, "cannot-restart", E),
    *((kind, "spec.runPolicy.cleanPodPolicy", said, "clean-pod-policy", W)
      for kind in ("PyTorchJob", "MPIJob") for said in (None, "None")),
    *((kind, f"{MAKER[kind]}.backoffLimit", limit, "backoff-limit", severity)
      for kind in ("Job", "JobSet") for limit, severity in ((None, W), (3, E), (4, W), (35, W))),
    *((kind, f"{MAKER[kind]}.backoffLimitPerIndex", 1, "index-limit", E)
      for kind in ("Job", "JobSet")),
    *((kind, f"{MAKER[kind]}.podFailurePolicy", FAILS_JOB, "index-limit", W)
      for kind in ("Job", "JobSet")),
    *((kind, f"{MAKER[kind]}.completionMode", "NonIndexed", "cannot-restart", E)
      for kind in ("Job", "JobSet")),
    *((kind, f"{MAKER[kind]}.completions", 3, "cannot-restart", E) for kind in ("Job", "JobSet")),
]  # fmt: skip
HARMLESS = [
    *((kind, f"{PODS[kind]}.terminationGracePeriodSeconds", 300) for kind in ALL_KINDS),
    *((kind, f"{POLICY[kind]}.ttlSecondsAfterFinished", 3600) for kind in POLICY),
    ("RayJob", "spec.ttlSecondsAfterFinished", 0),
    *((kind, f"{PODS[kind]}.tolerations", [{"operator": "Exists"}]) for kind in ALL_KINDS),
    ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.restartPolicy", None),
    ("MPIJob", "spec.runPolicy.backoffLimit", 9),
    ("MPIJob", "spec.runPolicy.cleanPodPolicy", "All"),
    ("Job", "spec.backoffLimit", 36),
    ("Job", "spec.podFailurePolicy", {"rules": [{"action": "Ignore"}]}),
    ("PyTorchJob", "spec.elasticPolicy", {"rdzvConf": [{"key": "join_timeout", "value": "1800"}]}),
]


def test_every_kind_has_its_parts_or_those_of_its_body() -> None:
    assert {kind.kind for kind in KINDS if kind.body is None} <= set(JOB_TEMPLATES)
    assert set(JOB_TEMPLATES) == set(HEALTHY)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_job_made_as_advised_has_no_diagnostics(kind: str) -> None:
    assert diagnostics(HEALTHY[kind]) == ()


@pytest.mark.parametrize(("kind", "path", "value", "rule", "severity"), CASES)
def test_each_violation_is_reported_and_its_remedy_fixes_it(
    kind: str, path: str, value: Any, rule: str, severity: RuleSeverity
) -> None:
    job = changed(HEALTHY[kind], path, value)

    found = diagnostics(job)

    assert {(one.rule, one.severity) for one in found} == {(rule, severity)}
    for one in found:
        written = one.line.value
        if isinstance(written, str) and written.startswith("{"):
            written = yaml.safe_load(written)
        job = changed(job, one.line.path, written)
    assert rule not in {one.rule for one in diagnostics(job)}


def test_every_rule_of_the_table_has_a_case() -> None:
    assert {rule.name for rule in RULES} - {case[3] for case in CASES} == {"checkpoint-volume"}


@pytest.mark.parametrize(("kind", "path", "value"), HARMLESS)
def test_harmless_settings_are_not_reported(kind: str, path: str, value: Any) -> None:
    assert diagnostics(changed(HEALTHY[kind], path, value)) == ()


def without_volumes(kind: str) -> dict[str, Any]:
    return json.loads(json.dumps(HEALTHY[kind]).replace("persistentVolumeClaim", "configMap"))


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize(
    ("volume", "said"),
    [
        (None, "no volume outlives a pod"),
        ({"emptyDir": {}}, "deleted with the pod"),
        ({"hostPath": {"path": "/x"}}, "unless it is shared"),
        ({"nfs": {"server": "x", "path": "/"}}, None),
        ({"csi": {"driver": "x"}}, None),
    ],
)
def test_checkpoints_need_a_volume_that_outlives_a_pod(
    kind: str, volume: dict[str, Any] | None, said: str | None
) -> None:
    job = without_volumes(kind)
    if volume is not None:
        job = changed(job, f"{PODS[kind]}.volumes[]", {"name": "v", **volume})

    found = diagnostics(job)

    assert [(one.rule, one.severity) for one in found] == (
        [("checkpoint-volume", W)] if said else []
    )
    assert all(said in one.why for one in found if said)
    for one in found:
        assert diagnostics(changed(job, one.line.path, yaml.safe_load(str(one.line.value)))) == ()


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_a_pod_that_tolerates_all_needs_the_selector_most(kind: str) -> None:
    job = changed(HEALTHY[kind], f"{PODS[kind]}.{SELECTOR}", None)
    job = changed(job, f"{PODS[kind]}.tolerations", [{"operator": "Exists"}])

    assert [(one.rule, one.severity) for one in diagnostics(job)] == [("node-selector", E)]


@pytest.mark.parametrize(
    ("values", "is_enough"), [(["Schedulable"], True), (["Schedulable", "Unschedulable"], False)]
)
@pytest.mark.parametrize("others", [[], [{"matchExpressions": [{"key": "zone"}]}]])
def test_affinity_is_as_good_as_a_selector_if_all_its_terms_say_so(
    values: list[str], others: list[Any], *, is_enough: bool
) -> None:
    expression = {"key": NAMES.node_health_status, "operator": "In", "values": values}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}, *others]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    job = changed(HEALTHY["Job"], f"{PODS['Job']}.{SELECTOR}", None)
    job = changed(job, f"{PODS['Job']}.affinity", affinity)

    is_in_order = is_enough and not others
    assert [one.rule for one in diagnostics(job)] == ([] if is_in_order else ["node-selector"])


@pytest.mark.parametrize(
    ("said", "waits"),
    [
        ("--rdzv-conf=timeout=1800", True),
        ("--rdzv_conf timeout=1799", False),
        ("--rdzv-conf join_timeout=3600,timeout=60", True),
        ("--rdzv-conf read_timeout=3600", False),
        ("", False),
    ],
)
def test_ranks_have_to_wait_for_each_other_as_long_as_a_repair_takes(
    said: str, *, waits: bool
) -> None:
    command = ["sh", "-c", f"python -m torch.distributed.run {said} train.py"]
    containers = [{"name": "main", "args": command}]
    job = changed(HEALTHY["PyTorchJob"], f"{PODS['PyTorchJob']}.containers", containers)

    assert [one.rule for one in diagnostics(job)] == ([] if waits else ["rendezvous-timeout"])


def test_all_jobs_of_a_set_count_when_its_pods_fail_together() -> None:
    job = changed(HEALTHY["JobSet"], "spec.replicatedJobs[0].replicas", 3)
    job = changed(job, "spec.replicatedJobs[0].template.spec.backoffLimit", 11)

    (found,) = diagnostics(job)

    assert (found.rule, found.severity) == ("backoff-limit", E)
    assert "12 at a time" in found.why


@pytest.mark.parametrize(
    ("own", "limit", "rules", "severities"),
    [
        (None, 0, (), [E]),
        (0, 0, (), [E]),
        (1, 0, (), [W]),
        (8, 0, (), [W]),
        (9, 0, (), []),
        (1, None, ({"action": "FailJob"},), []),
        (None, None, ({"action": "FailJob"},), [W]),
    ],
)
def test_a_set_that_restarts_by_itself_fails_only_once_it_has_done_so_as_often_as_it_may(
    own: int | None, limit: int | None, rules: tuple[Any, ...], severities: list[RuleSeverity]
) -> None:
    job = HEALTHY["JobSet"]
    if own is not None:
        job = changed(job, "spec.failurePolicy", {"maxRestarts": own})
    if limit is not None:
        job = changed(job, "spec.replicatedJobs[0].template.spec.backoffLimit", limit)
    job = changed(job, "spec.replicatedJobs[1].template.spec.podFailurePolicy", {"rules": rules})

    found = diagnostics(job)

    assert [one.severity for one in found] == severities
    assert all(f"restarts it for that {own} times" in one.why for one in found if own)


def test_the_pods_of_a_train_job_are_those_of_what_was_made_for_it() -> None:
    job = a_job("TrainJob", {"runtimeRef": {"name": "torch"}})
    owner = {"kind": "TrainJob", "name": "llama", "uid": "u", "controller": True}
    body = changed(HEALTHY["JobSet"], "metadata.ownerReferences", [owner])
    body = changed(changed(body, "metadata.annotations", {}), "metadata.uid", "b")
    limited = changed(body, "spec.replicatedJobs[0].template.spec.backoffLimit", 0)

    assert diagnostics(job) == diagnose_object(OF_KIND["TrainJob"], job, body).diagnostics == ()
    (found,) = diagnose_object(OF_KIND["TrainJob"], job, limited).diagnostics
    assert (found.rule, found.line.path) == (
        "backoff-limit",
        "runtime: spec.template.spec.replicatedJobs[0].template.spec.backoffLimit",
    )


def test_a_job_that_belongs_to_another_is_sent_there() -> None:
    owner = {"kind": "MyJob", "name": "m", "uid": "u", "controller": True}
    job = changed(HEALTHY["JobSet"], "metadata.ownerReferences", [owner])

    (found,) = diagnostics(job)

    assert (found.rule, found.remedy) == ("cannot-restart", f"remove {SWITCH}")
    assert "MyJob m" in found.why


# Manifests


def manifest(*jobs: dict[str, Any]) -> str:
    return yaml.safe_dump_all(jobs)


def test_all_jobs_of_a_manifest_are_diagnosed_and_other_objects_ignored() -> None:
    other = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    items = {"apiVersion": "v1", "kind": "List", "items": [HEALTHY["Job"], other]}
    text = manifest(other, HEALTHY["PyTorchJob"], items)

    found = diagnose_manifest(f"{text}\n---\n", "jobs.yaml")

    assert [one.job for one in found] == ["pytorchjob/team/llama", "job/team/llama"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "jobs.yaml: no job of a supported kind found; supported kinds: PyTorchJob (",
        ),
        ("a: [", "jobs.yaml: not valid YAML"),
        ("{{ if .x }}", "jobs.yaml: not valid YAML"),
        (manifest({**HEALTHY["Job"], "metadata": None}), "jobs.yaml: invalid Job"),
        (manifest({**HEALTHY["JobSet"], "spec": ["x"]}), "jobs.yaml: invalid JobSet"),
        (manifest(changed(HEALTHY["Job"], "spec.backoffLimit", "9")), "invalid Job"),
    ],
)
def test_a_manifest_without_a_valid_job_is_rejected(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        diagnose_manifest(text, "jobs.yaml")


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["spec", "replicas", "template", "containers", "x"]), inner
        )
    ),
    max_leaves=8,
)


@given(kind=st.sampled_from(ALL_KINDS), spec=junk)
@settings(max_examples=examples(200))
def test_no_manifest_crashes_the_doctor(kind: str, spec: Any) -> None:
    with suppress(ConfigError):
        diagnose_manifest(json.dumps({**HEALTHY[kind], "spec": spec}), "jobs.yaml")


# The command


def doctor(tmp_path, capsys, *options: str, **jobs: dict[str, Any]) -> tuple[int, str, str]:
    files = []
    for name, job in jobs.items():
        path = tmp_path / f"{name}.yaml"
        path.write_text(manifest(job), encoding="utf-8")
        files += ["-f", str(path)]
    capsys.readouterr()
    return run(["jobs", "doctor", *files, *options]), *capsys.readouterr()


@pytest.mark.parametrize(
    ("path", "value", "options", "code"),
    [
        (RETRIES, "5", ["--strict"], ExitCode.OK),
        (RETRIES, None, ["--strict"], ExitCode.OK),
        (RETRIES, "0", [], ExitCode.OK),
        (RETRIES, "0", ["--strict"], ExitCode.FAILED),
        (SWITCH, None, [], ExitCode.FAILED),
    ],
)
def test_scripts_learn_by_the_exit_code_whether_a_job_resumes(
    tmp_path, capsys, path: str, value: str | None, options: list[str], code: ExitCode
) -> None:
    job = changed(HEALTHY["Job"], path, value)

    assert doctor(tmp_path, capsys, *options, job=job)[0] == code


def test_people_get_the_line_to_change_and_programs_its_parts(tmp_path, capsys) -> None:
    job = changed(HEALTHY["PyTorchJob"], SWITCH, None)

    _, text, _ = doctor(tmp_path, capsys, job=job, good=HEALTHY["Job"])
    _, plain, _ = doctor(tmp_path, capsys, "--output", "json", job=job)

    assert f'{SWITCH}: "true"' in text
    assert "Problems:" in text
    assert json.loads(plain) == [
        {
            "job": "pytorchjob/team/llama",
            "diagnostics": [
                {
                    "rule": "auto-resume-off",
                    "severity": "error",
                    "found": "",
                    "why": "without this annotation the job is not restarted",
                    "remedy": f'{SWITCH}: "true"',
                    "line": {"path": SWITCH, "value": "true"},
                }
            ],
        }
    ]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ([], "give a JOB of the cluster, or manifests"),
        (["train"], "supports Kubernetes jobs only, not local"),
        (["-f", "/nowhere.yaml"], "/nowhere.yaml"),
    ],
)
def test_the_doctor_says_what_it_needs(capsys, argv: list[str], said: str) -> None:
    assert run(["jobs", "doctor", *argv]) == ExitCode.BAD_INPUT
    assert said in capsys.readouterr().err
