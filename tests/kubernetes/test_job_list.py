"""How the jobs of a cluster are read for people."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_objects import BEGAN, LABELS, a_job_object, a_record, a_state, at, requests
from scripted_server import Answer, ScriptedServer, refuse, reply
from test_kubeconfig import config, write

from holdfast.adapters.kubernetes.client.api import Api, Server, in_cluster
from holdfast.adapters.kubernetes.client.errors import Forbidden
from holdfast.adapters.kubernetes.client.kubeconfig import read_kubeconfig
from holdfast.adapters.kubernetes.jobs.kinds import KINDS
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.kubernetes.jobs import KubernetesJobList, job_status, reported
from holdfast.apps.main import run
from holdfast.apps.views.jobs import attempts_of, find_name
from holdfast.apps.views.not_found import NotFound
from holdfast.model.jobs import AttemptRecord, Failure, FailureKind, JobPhase
from holdfast.model.names import JOB_RECORD, Reason

LLAMA = "pytorchjob/default/llama"
SWITCH = LABELS.enable_job_auto_resume


def shown(**changes: Any) -> tuple[str, str]:
    state = a_state(**changes)
    status = job_status(state, requests(state))
    return status.phase, status.reason


@pytest.mark.parametrize(
    ("changes", "phase", "reason"),
    [
        ({"record": a_record()}, "running", ""),
        ({"record": a_record(JobPhase.WAITING, reason="XidReplace"), "suspend": True},
         "waiting", "XidReplace"),
        ({"record": a_record(JobPhase.STOPPING), "suspend": True}, "stopping", ""),
        (
            {"record": a_record(), "suspend": True},
            "suspended",
            "suspended by another program or person",
        ),
        ({"suspend": True}, "suspended", "suspended by another program or person"),
        ({}, "starting", "no controller has recorded all its ranks as running yet"),
        ({"record": a_record(), "conditions": ("Succeeded",)}, "succeeded", "it is Succeeded"),
        ({"record": a_record(JobPhase.FAILED, reason="2 retries are spent"), "suspend": True},
         "failed", "2 retries are spent"),
        ({"annotations": {SWITCH: None}}, "unmanaged",
         "auto-resume is not enabled: see holdfast jobs doctor"),
        ({"annotations": {SWITCH: "yes"}}, "unmanaged",
         f"{SWITCH} is 'yes': expected \"true\" or \"false\""),
        ({"annotations": {JOB_RECORD: "{"}}, "unmanaged",
         "its record cannot be read; remove the annotation holdfast.dev/job-record"),
    ],
)  # fmt: skip
def test_a_job_says_where_it_stands_and_why(changes, phase, reason) -> None:
    assert shown(**changes) == (phase, reason)


def test_what_a_job_has_spent_is_shown_beside_what_it_may() -> None:
    record = a_record(hardware_retries=2, app_retries=1, placement=("a", "b"))
    state = a_state(record=record, annotations={LABELS.job_max_retry_count: "5"}, workers=3)

    status = job_status(state, requests(state))

    assert (status.name, status.nodes, status.placement) == (LLAMA, 4, ("a", "b"))
    assert (status.hardware_retries, status.max_retries) == (2, 5)
    assert (status.app_retries, status.max_app_retries) == (1, 3)
    assert status.is_active
    assert not job_status(a_state(annotations={SWITCH: "no"}), requests(a_state())).cancel_requested


def over(number: int, began: float, ended: float, failed: float | None, **more) -> AttemptRecord:
    failure = None
    if failed is not None:
        kind, reason = FailureKind.HARDWARE, Reason.XID_REPLACE
        failure = Failure(kind=kind, reason=reason, at=second(failed), node="a", evidence="NVRM")
    return AttemptRecord(
        attempt=number,
        placement=("a",),
        started_at=second(began),
        stopped_at=second(ended),
        failure=failure,
        **more,
    )


def second(number: float):
    return a_record(since=number).phase_since


def test_a_restart_is_reported_by_its_parts() -> None:
    record = a_record(
        attempt=2,
        attempts=(over(1, 0, 101, 100, running_at=second(5)),),
        started_at=second(131),
        running_at=second(135),
    )

    first, second_ = attempts_of(record)

    assert (first.waited, first.started_in.total_seconds()) == (None, 5)
    assert (first.stopped_in.total_seconds(), first.lasted.total_seconds()) == (1, 101)
    assert (second_.waited.total_seconds(), second_.started_in.total_seconds()) == (30, 4)
    assert (second_.stopped_in, second_.stopped_at) == (None, None)


def test_an_attempt_that_is_being_stopped_has_its_failure_and_no_end() -> None:
    failure = over(1, 0, 1, 1).failure
    stopping = a_record(JobPhase.STOPPING, failure=failure)
    running = a_record(JobPhase.RUNNING, failure=failure)

    assert [(one.node, one.stopped_in) for one in attempts_of(stopping)] == [("a", None)]
    assert [one.node for one in attempts_of(running)] == [""]
    assert attempts_of(a_record(JobPhase.WAITING, attempt=0)) == ()


# Events


def an_event(**fields: Any) -> dict[str, Any]:
    about = {"creationTimestamp": at(1)}
    return {"metadata": about, "reason": "NodeFault", "message": "a broke", **fields}


@pytest.mark.parametrize(
    ("fields", "seconds", "message", "count"),
    [
        ({"lastTimestamp": at(9), "count": 3, "firstTimestamp": at(2)}, 9, "a broke (x3)", 3),
        ({"eventTime": at(7), "lastTimestamp": None}, 7, "a broke", 1),
        ({"eventTime": at(7), "series": {"lastObservedTime": at(8), "count": 2}},
         8, "a broke (x2)", 2),
        ({}, 1, "a broke", 1),
        ({"message": None}, 1, "", 1),
    ],
)  # fmt: skip
def test_an_event_is_reported_with_the_time_of_its_last_word(
    fields, seconds, message, count
) -> None:
    one = reported(an_event(type="Warning", source={"component": "c"}, **fields))

    assert one.at == second(seconds)
    assert (one.event, one.message) == ("NodeFault", f"NodeFault: {message}")
    assert one.details == {"type": "Warning", "count": count, "source": "c"}


# Names


NAMES = ["job/a/llama", "pytorchjob/a/llama", "pytorchjob/b/llama", "pytorchjob/b/gemma"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gemma", "pytorchjob/b/gemma"),
        ("b/gemma", "pytorchjob/b/gemma"),
        ("b/llama", "pytorchjob/b/llama"),
        ("job/llama", "job/a/llama"),
        ("pytorchjob/a/llama", "pytorchjob/a/llama"),
    ],
)
def test_a_job_goes_by_as_much_of_its_name_as_only_it_has(text: str, name: str) -> None:
    assert find_name(text, NAMES) == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("llama", r"is ambiguous \(job/a/llama, pytorchjob/a/llama, pytorchjob/b/llama\)"),
        ("lla", "job 'lla' not found"),
        ("a", "job 'a' not found"),
        ("", "job '' not found"),
        ("x/pytorchjob/a/llama", "job 'x/pytorchjob/a/llama' not found"),
    ],
)
def test_what_means_no_job_or_several_is_reported(text: str, said: str) -> None:
    with pytest.raises(NotFound, match=said):
        find_name(text, NAMES)


@given(st.text("ab/", max_size=6), st.lists(st.text("ab/", min_size=1, max_size=6), max_size=4))
def test_a_whole_name_always_means_its_job(text: str, names: list[str]) -> None:
    assert find_name(text, sorted({text, *names})) == text


# What can be read


def read(server: ScriptedServer, namespace: str) -> list[str]:
    api = Api(Server(url=server.url), user_agent="test", field_manager="test")
    with closing(KubernetesJobList(api, namespace)) as jobs:
        return [one.name for one in jobs.jobs()]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    """API server that does not tell which kinds are installed, so that all are asked for."""
    server = ScriptedServer()
    server.answers.append(refuse(403))
    yield server
    server.end()


def one_kind(code: int) -> list[Answer]:
    """Of all kinds the first has a job, the others are refused."""
    return [reply({"items": [a_job_object()]}), *(refuse(code) for _ in KINDS[1:])]


def test_kinds_that_are_not_installed_have_no_jobs(server: ScriptedServer, capsys) -> None:
    server.answers += one_kind(404)

    assert read(server, "team") == [LLAMA]
    assert capsys.readouterr().err == ""
    assert all("/namespaces/team/" in requested.path for requested in server.requested[1:])


def test_only_installed_kinds_are_asked_for(server: ScriptedServer) -> None:
    versions = [{"groupVersion": "kubeflow.org/v1"}, {"groupVersion": "batch/v1"}]
    groups = [{"versions": versions}, {"versions": [{"groupVersion": "apps/v1"}]}]
    server.answers.clear()
    server.answers += [reply({"groups": groups}), reply({"items": [a_job_object()]})]
    server.answers.append(reply({"items": []}))

    assert read(server, "") == [LLAMA]
    paths = [requested.path.partition("?")[0] for requested in server.requested]
    assert paths == ["/apis", "/apis/kubeflow.org/v1/pytorchjobs", "/apis/batch/v1/jobs"]


def test_kinds_that_may_not_be_read_are_left_out_with_a_word(
    server: ScriptedServer, capsys
) -> None:
    server.answers += one_kind(403)

    assert read(server, "") == [LLAMA]
    assert "some jobs are not shown" in capsys.readouterr().err
    assert not any("/namespaces/" in requested.path for requested in server.requested)


def test_only_jobs_that_ask_or_were_looked_after_are_listed(server: ScriptedServer) -> None:
    ignored = a_job_object(annotations={SWITCH: None}, name="ignored")
    known = a_job_object(annotations={SWITCH: None}, name="known", record=a_record())
    wrong = a_job_object(annotations={SWITCH: "yes"}, name="wrong")
    server.answers.append(reply({"items": [ignored, known, wrong]}))

    listed = read(server, "team")

    assert listed == ["pytorchjob/default/known", "pytorchjob/default/wrong"]


def a_pod_object(job: str, index: int, owner: str = "job-uid") -> dict[str, Any]:
    labels = {
        "training.kubeflow.org/job-name": job,
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": str(index),
    }
    owners = [{"controller": True, "uid": owner}]
    about = {"namespace": "default", "name": f"{job}-{index}", "uid": f"{job}-{index}"}
    metadata = {**about, "labels": labels, "ownerReferences": owners}
    return {"metadata": metadata, "spec": {"nodeName": "a"}, "status": {"phase": "Running"}}


def test_a_job_is_described_with_its_own_pods_and_what_was_reported_in_turn(
    server: ScriptedServer,
) -> None:
    job = a_job_object(record=a_record(JobPhase.WAITING, reason="XidReplace"), suspend=True)
    events = [
        an_event(lastTimestamp=at(20), reason="B"),
        an_event(lastTimestamp=at(20), reason="JobWaiting", message=f"{LLAMA}: for nodes"),
        an_event(lastTimestamp=at(19), reason="A"),
        an_event(lastTimestamp=at(2), reason="JobWaiting", message="for an older attempt"),
    ]
    for version, event in zip(("11", "9", "12", "3"), events, strict=True):
        event["metadata"]["resourceVersion"] = version
    pods = [
        a_pod_object("llama", 1),
        a_pod_object("llama", 0),
        a_pod_object("llama", 7, owner="an-older-llama"),
        a_pod_object("gemma", 3),
    ]
    nothing = [refuse(404) for _ in KINDS[1:]]
    server.answers += [reply({"items": [job]}), *nothing]
    server.answers += [reply({"items": events}), reply({"items": pods})]
    api = Api(Server(url=server.url), user_agent="test", field_manager="test")

    with closing(KubernetesJobList(api, "team")) as jobs:
        story = jobs.describe("llama")

    assert [one.event for one in story.reported] == ["JobWaiting", "A", "JobWaiting", "B"]
    assert [rank.name for rank in story.ranks] == ["llama-0", "llama-1"]
    assert story.status.reason == "XidReplace; for nodes"


def log_line(seconds: float, step: int) -> bytes:
    return f"{at(seconds)} step: {step:2}  loss:  2.50000  grad_norm:  1.2000\n".encode()


@pytest.mark.parametrize(
    ("logs", "step", "rate"),
    [
        ([b"".join(log_line(10 * one, one) for one in range(1, 41))], 40, 0.1),
        ([log_line(10, 1)], 1, None),
        ([b"", log_line(10, 1) + log_line(12, 9)], 9, 4.0),
        ([b"", b""], None, None),
        ([None, None], None, None),
    ],
)
def test_a_running_job_has_the_step_and_the_rate_that_its_logs_show(
    server: ScriptedServer, logs: list[bytes | None], step: int | None, rate: float | None
) -> None:
    job = a_job_object(record=a_record(JobPhase.RUNNING))
    pods = [a_pod_object("llama", 2), a_pod_object("llama", 0), a_pod_object("llama", 1)]
    server.answers += [reply({"items": [job]}), *(refuse(404) for _ in KINDS[1:])]
    server.answers += [reply({"items": []}), reply({"items": pods})]
    server.answers += [refuse(403) if log is None else reply(log) for log in logs]
    api = Api(Server(url=server.url), user_agent="test", field_manager="test")

    with closing(KubernetesJobList(api, "team")) as jobs:
        status = jobs.describe("llama").status

    assert (status.step, status.steps_per_second) == (step, rate)
    read = [one.path for one in server.requested if "/log?" in one.path]
    assert [path.split("/log?")[0][-1] for path in read] == ["0", "2"][: len(logs)]


def test_what_an_earlier_attempt_waited_for_is_not_why_a_job_waits(
    server: ScriptedServer,
) -> None:
    job = a_job_object(record=a_record(JobPhase.WAITING, reason="XidReplace"), suspend=True)
    events = [an_event(lastTimestamp=at(9), reason="JobWaiting", message="for others")]
    server.answers += [reply({"items": [job]}), *(refuse(404) for _ in KINDS[1:])]
    server.answers += [reply({"items": events}), reply({"items": []})]
    api = Api(Server(url=server.url), user_agent="test", field_manager="test")

    with closing(KubernetesJobList(api, "team")) as jobs:
        assert jobs.describe("llama").status.reason == "XidReplace"


@pytest.mark.parametrize(
    ("options", "where"),
    [([], "/namespaces/team/"), (["-n", "b"], "/namespaces/b/"), (["-A"], "/v1/pytorchjobs")],
)
def test_a_list_is_of_the_contexts_namespace_unless_another_is_named(
    server: ScriptedServer, tmp_path: Path, capsys, options: list[str], where: str
) -> None:
    content = config(cluster={"server": server.url})
    content["contexts"][0]["context"]["namespace"] = "team"
    kubeconfig = write(tmp_path / "config", content)

    assert run(["jobs", "list", "--kubeconfig", str(kubeconfig), *options]) == ExitCode.OK

    assert where in server.requested[1].path
    assert "enables auto-resume" in capsys.readouterr().err


@pytest.mark.parametrize("is_there", [True, False])
def test_what_was_made_of_a_train_job_is_read_with_it(
    server: ScriptedServer, *, is_there: bool
) -> None:
    about = {"namespace": "team", "name": "llama", "uid": "t"}
    job = {"metadata": about, "spec": {"runtimeRef": {"name": "torch"}}}
    body = {"metadata": {**about, "uid": "s"}, "spec": {}}
    server.answers += [
        reply({"items": [job]}) if kind.kind == "TrainJob" else refuse(404) for kind in KINDS
    ]
    server.answers += [reply(body) if is_there else refuse(404), reply(job)]
    api = Api(Server(url=server.url), user_agent="test", field_manager="test")

    with closing(KubernetesJobList(api, "team")) as jobs:
        kind, whole, made = jobs.whole("trainjob/llama")

    assert (kind.kind, whole, made) == ("TrainJob", job, body if is_there else None)
    requested = [one.path for one in server.requested[-2:]]
    assert requested[0].endswith("/namespaces/team/jobsets/llama")
    assert requested[1].endswith("/namespaces/team/trainjobs/llama")


def test_who_may_read_nothing_is_informed(server: ScriptedServer) -> None:
    server.answers += [refuse(403) for _ in KINDS]

    with pytest.raises(Forbidden):
        read(server, "team")


@pytest.mark.parametrize(("given_", "expected"), [({"namespace": "team"}, "team"), ({}, "default")])
def test_the_namespace_is_that_of_the_context(tmp_path: Path, given_, expected: str) -> None:
    content = config()
    content["contexts"][0]["context"] |= given_
    account = tmp_path / "account"
    for name in ("token", "ca.crt"):
        write(account / name, "x")
    if given_:
        (account / "namespace").write_text("team\n", encoding="utf-8")

    assert read_kubeconfig([write(tmp_path / "config", content)]).namespace == expected
    in_pod = in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, account)
    assert in_pod.namespace == expected


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["list", "-A", "-n", "team"], "give only one"),
        (["list", "-A", "--state-dir", "/x"], "use one or the other"),
        (["doctor", "x", "-f", "-"], "give a JOB of the cluster, or manifests"),
    ],
)
def test_options_that_contradict_each_other_are_refused(capsys, argv, said: str) -> None:
    assert run(["jobs", *argv]) == ExitCode.BAD_INPUT
    assert said in capsys.readouterr().err


def test_an_option_of_kubernetes_says_where_to_look(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))

    assert run(["jobs", "list", "-n", "team"]) == ExitCode.BAD_INPUT
    assert "no kubeconfig" in capsys.readouterr().err


def test_json_of_an_event_has_its_details_beside_it() -> None:
    plain = reported(an_event(type="Normal")).plain()

    assert json.loads(json.dumps(plain)) == {
        "type": "Normal",
        "level": "Info",
        "count": 1,
        "source": "",
        "at": BEGAN.replace(second=1).isoformat(),
        "event": "NodeFault",
        "message": "NodeFault: a broke",
    }
