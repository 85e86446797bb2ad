"""Logs and cancellation of jobs over the console's server."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from console_server import TOKENS, Site, Visitor, site
from hypothesis import given
from hypothesis import strategies as st
from test_console_server import told_of

from holdfast.adapters.host.evidence_file import write_evidence
from holdfast.adapters.local.store import LocalStore
from holdfast.apps.views.rank_logs import BEGINNING, LogRequest, read_file
from holdfast.decisions.hang_evidence import HangEvidence, RankEvidence
from holdfast.decisions.hang_verdict import verdict
from holdfast.decisions.kernel_lines import KernelLine, NodeKernelLog
from holdfast.decisions.rank_accelerators import Accelerator
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot
from holdfast.model.errors import BackendError
from holdfast.model.jobs import JobPhase

WAITS = (Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),)
READS = (Frame(function="reads", file="/w/train.py", line=7),)
SEEN = [
    RankSnapshot(
        rank=rank,
        node="n",
        pid=9,
        state="S",
        frames=READS if rank == 1 else WAITS,
        accelerator=Accelerator(name="0", used_mib=512) if rank == 1 else None,
    )
    for rank in range(3)
]
EVIDENCE = HangEvidence(
    job="hung",
    attempt=2,
    suspected_at=datetime(2026, 1, 1, tzinfo=UTC),
    evidence="no new step for 3m",
    verdict=verdict(SEEN),
    ranks=tuple(RankEvidence(snapshot=one, environment={"A": "b"}) for one in SEEN),
    kernel=(
        NodeKernelLog(
            node="n",
            lines=(KernelLine(at=datetime(2026, 1, 1, tzinfo=UTC), text="NVRM: Xid"),),
        ),
    ),
)


@pytest.fixture(scope="module")
def console(tmp_path_factory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("console")) as one:
        yield one


@pytest.fixture(scope="module")
def ada(console: Site) -> Visitor:
    return console.visitor("ada")


def add(console: Site, name: str, **job: object) -> LocalStore:
    """A run that the console has seen: it reads five times a second."""
    store = console.runs.add(name, **job)
    told_of(console.visitor("ada"), f"/console/job?name={name}", bool)
    return store


def write_log(console: Site, run: str, text: bytes, attempt: int = 1, rank: int = 0) -> None:
    log = console.runs.directory(run).log(attempt, rank)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(text)


def log(visitor: Visitor, job: str, rank: int = 0, **more: object):
    query = "&".join(f"{name}={value}" for name, value in {"rank": rank, **more}.items())
    return visitor.call("GET", f"/console/log?job={job}&{query}")


def test_the_log_of_a_rank_is_read_from_its_end_and_followed(console, ada) -> None:
    add(console, "log", attempt=2)
    write_log(console, "log", b"old\n", attempt=1)
    write_log(console, "log", b"x" * (1 << 18) + b"\nstep 1\n", attempt=2, rank=1)

    tail = log(ada, "log", 1).json
    assert (tail["text"], tail["attempt"], tail["is_cut"]) == ("step 1\n", 2, True)
    assert log(ada, "log", 1, after=tail["cursor"]).json["text"] == ""
    with console.runs.directory("log").log(2, 1).open("ab") as file:
        file.write(b"step 2\n\xe2\x82")
    after = log(ada, "log", 1, after=tail["cursor"]).json
    assert (after["text"], after["is_cut"], after["has_more"]) == ("step 2\n", False, False)
    assert log(ada, "log", 0, attempt=1).json["text"] == "old\n"
    assert log(ada, "log", 0).json["text"] == ""


def test_the_whole_log_is_stored_as_a_file(console, ada) -> None:
    add(console, "whole")
    content = b"".join(b"line %d \xe2\x82\xac\n" % number for number in range(60_000))
    write_log(console, "whole", content)

    answer = ada.call("GET", "/console/log/file?job=whole&rank=0")

    assert answer.body == content
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    assert '"whole-attempt-1-rank-0.log"' in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("job=none&rank=0", 404),
        ("job=few&rank=2", 404),
        ("job=few&rank=0&attempt=2", 404),
        ("job=few&rank=x", 400),
        ("job=few", 400),
        ("job=few&rank=0&attempt=-1", 400),
    ],
)
def test_other_logs_are_refused(console, ada, query, status) -> None:
    if "few" not in {one.name for one in console.runs.home.glob("runs/*")}:
        add(console, "few")

    assert ada.call("GET", f"/console/log?{query}").status == status
    assert ada.call("GET", f"/console/log/file?{query}").status == status


def test_the_evidence_of_the_last_hang_is_shown_by_stack(console, ada) -> None:
    add(console, "hung", attempt=3)
    asked = "/console/evidence?name=hung"
    assert ada.call("GET", asked).status == 404
    write_evidence(console.runs.directory("hung").evidence(2), EVIDENCE)

    shown = ada.call("GET", asked).json

    assert (shown["attempt"], shown["named"], shown["kind"]) == (2, [1], "absent")
    assert [one["ranks"] for one in shown["groups"]] == [[0, 2], [1]]
    assert shown["groups"][1]["stack"] == ["reads (/w/train.py)"]
    assert [one["accelerator"] for one in shown["ranks"]] == ["", "GPU 0: 512 MiB", ""]
    assert shown["kernel"] == [
        {"node": "n", "lines": ["2026-01-01T00:00:00.000+00:00 NVRM: Xid"], "note": ""}
    ]
    assert "environment" not in json.dumps(shown)
    assert console.visitor("eve").call("GET", asked).status == 403  # as for the log
    assert console.visitor("fay").call("GET", asked).status == 404


def test_jobs_of_other_clusters_are_hidden_and_logs_need_the_operation(console) -> None:
    add(console, "secret")
    write_log(console, "secret", b"password\n")
    eve = console.visitor("eve")

    assert log(eve, "secret").status == 403  # her key does not name the operation
    assert log(console.visitor("bob"), "secret").json["text"] == "password\n"
    assert log(console.visitor(), "secret").status == 401
    fay = console.visitor("fay")
    assert log(fay, "secret").status == 404
    assert fay.call("GET", "/console/log/file?job=secret&rank=0").status == 404
    assert fay.call("GET", "/console/job?name=secret").status == 404
    assert fay.call("GET", "/console/checkpoints?name=secret").status == 404
    assert fay.call("POST", "/console/jobs/cancel", {"job": "secret"}).status == 404


def test_a_job_is_cancelled_by_who_may_and_that_is_audited(console, ada) -> None:
    store = add(console, "stop")
    ended = add(console, "ended", phase=JobPhase.SUCCEEDED)
    job = {"job": "stop"}

    assert console.visitor("bob").call("POST", "/console/jobs/cancel", job).status == 403
    assert ada.call("POST", "/console/jobs/cancel", job, x_holdfast_proof="0" * 64).status == 403
    assert ada.call("POST", "/console/jobs/cancel", job, origin="http://evil").status == 403
    assert not store.jobs()["stop"][2]
    reply = ada.call("POST", "/console/jobs/cancel", job)
    assert (reply.status, store.jobs()["stop"][2]) == (202, True)
    assert "Cancellation of stop requested" in reply.json["message"]
    over = ada.call("POST", "/console/jobs/cancel", {"job": "ended"})
    assert (over.status, ended.jobs()["ended"][2]) == (404, False)
    assert ada.call("POST", "/console/jobs/cancel", {"job": 5}).status == 400

    lines = (console.runs.home / "audit.jsonl").read_text("utf-8").splitlines()
    entries = [json.loads(line) for line in lines]
    cancels = [one for one in entries if one["operation"] == "CancelJob"]
    by_ada = [one for one in cancels if one.get("person") == "ada"]
    assert {"accepted", "refused"} == {one["outcome"] for one in by_ada}
    assert {"job": "stop"} in [one.get("request") for one in by_ada]


def test_what_is_no_plain_file_is_not_read(tmp_path) -> None:
    request = LogRequest(rank=0, limit=100)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "fifo")

    for name in ("link", "fifo", "."):
        with pytest.raises(BackendError):
            read_file(tmp_path / name, request, 1)


@given(text=st.text(max_size=200), limit=st.integers(4, 50))
def test_parts_of_a_log_add_up_to_it(tmp_path_factory, text, limit) -> None:
    path = tmp_path_factory.getbasetemp() / "log"
    path.write_bytes(text.encode())
    parts, cursor, has_more = [], BEGINNING, True
    while has_more:
        part = read_file(path, LogRequest(rank=0, after=cursor, limit=limit), 1)
        parts.append(part.text)
        cursor, has_more = part.cursor, part.has_more

    assert "".join(parts) == text


@pytest.mark.parametrize(("person", "status"), [("ida", 200), ("ada", 403), ("jon", 403)])
def test_the_audit_log_is_for_administrators_of_all_clusters(console, person, status) -> None:
    answer = console.visitor(person).call("GET", "/console/audit")

    assert answer.status == status
    assert (answer.json.get("entries") is None) is (status == 403)


def scrape(console: Site, token: str, kind: str = "Bearer"):
    headers = {"authorization": f"{kind} {token}", "origin": None}
    return Visitor(console.served).call("GET", "/metrics", **headers)


def test_goodput_of_jobs_is_served_to_prometheus(console, ada) -> None:
    now = datetime.now(UTC)
    times = {"started_at": now - timedelta(hours=1), "running_at": now - timedelta(minutes=15)}
    add(console, "measured", **times)
    old = now - timedelta(hours=2)
    add(console, "old", phase=JobPhase.SUCCEEDED, started_at=old, phase_since=old)

    answer = scrape(console, TOKENS["ada"])

    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = answer.body.decode()
    goodput = 'holdfast_job_goodput_ratio{job_name="measured"}'
    assert samples(text, goodput) == [pytest.approx(0.25, abs=0.02)]
    assert 'job_name="old"' not in text
    uses = 'holdfast_job_time_seconds{job_name="measured",use="'
    assert sum(samples(text, uses)) == pytest.approx(3600, rel=0.02)
    assert samples(text, 'holdfast_fleet_nodes{fleet="measured",state="healthy"}') == [3.0]


def samples(text: str, name: str) -> list[float]:
    return [float(line.split()[-1]) for line in text.splitlines() if line.startswith(name)]


def test_metrics_are_for_who_may_see_them(console) -> None:
    add(console, "hidden")

    assert scrape(console, TOKENS["ada"], "Basic").status == 401
    assert scrape(console, "x" * 30).status == 401
    assert scrape(console, TOKENS["hal"]).status == 403
    assert b'"hidden"' in scrape(console, TOKENS["bob"]).body
    assert b'"hidden"' not in scrape(console, TOKENS["fay"]).body
