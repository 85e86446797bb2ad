"""No text of a less trusted party makes a parser fail otherwise than documented, or take long."""

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hostile import FUZZ, LONGEST, Parser, mutated, timed
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.host.log_rule_text import rules_of
from holdfast.adapters.slurm.commands import comment as comments
from holdfast.adapters.slurm.commands.hostlist import expand
from holdfast.adapters.slurm.commands.job_text import parse_batch_jobs, parse_reservations
from holdfast.adapters.slurm.commands.node_text import parse_jobs, parse_nodes
from holdfast.adapters.slurm.commands.reasons import parse_reason
from holdfast.adapters.slurm.jobs.own_job import parse_steps
from holdfast.adapters.slurm.nodes.reports import _parsed
from holdfast.adapters.slurm.nodes.saved import parse_saved
from holdfast.detectors.contract import LogLine, Origin, Profile, Readings
from holdfast.detectors.folding import Health, fold
from holdfast.detectors.kernel_log import KernelLog, kernel_line
from holdfast.detectors.line_trust import LineTrust
from holdfast.detectors.table import detectors, log_keywords
from holdfast.kit.bounded_files import parse_json
from holdfast.kit.serial import parse_value, to_plain
from holdfast.kit.units import parse_duration
from holdfast.kit.webhooks import pause_of
from holdfast.model.jobs import JobRecord
from holdfast.model.report import NodeReport
from tests.ports.builders import a_fault, a_job

NOW = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)
RECORDED = Path(__file__).parents[1] / "recordings" / "kernel-lines" / "reported.jsonl"
KERNEL_LINES = [
    "4,1234,5678901,-;" + json.loads(line)["line"] for line in RECORDED.read_text().splitlines()
]
TRUST = LineTrust(corroboration_window=timedelta(minutes=5))
WATCHERS = [TRUST.applied(one) for one in detectors(Profile.HYPERPOD) if one.keywords]
MARK = "=mark"
JOB = (
    "7|7|N/A|N/A|RUNNING|None|2|1|1|2026-11-21T03:59:17|2026-11-21T03:59:18|2026-11-21T03:59:19|"
    f"2026-11-21T04:59:19|2|node[1-2]|node1|n1|ann|dev|HOLDFAST_7|768|auto-resume=1{MARK}\n"
)
REPORT = json.dumps(to_plain(NodeReport(
    node="node1", boot_id="b", sequence=7, reported_at=NOW, faults=(a_fault(seen_at=NOW),),
)))  # fmt: skip
RECORD = json.dumps(to_plain(a_job().record))
SIGNED = json.dumps({"machine": "m-1", "report": json.loads(REPORT)})
RULES = json.dumps(
    [{"name": "l", "logPattern": "loss: ([0-9.]+)", "metricThreshold": 1.5, "operator": "gt"}]
)


def read_comment(text: str) -> None:
    request = comments.parse(text)
    assert request.max_retry is None or request.max_retry <= comments.MAX_RETRY_LIMIT
    assert request.checkpoint.isprintable()
    assert len(request.rejected) <= comments.REJECTED_LIMIT
    shown = json.dumps([[one.key, one.value] for one in request.rejected], ensure_ascii=False)
    assert len(shown.encode()) < 16_384  # as an event; refuses lone surrogates
    for changed in (
        comments.changed(text, {comments.Key.AUTO_RESUME: "1"}),
        comments.noted(text, "waits for a node"),
    ):
        comments.parse(changed)


def read_rules(text: str) -> None:
    rules, rejected = rules_of(text, "rules")
    assert len(rules) <= 20
    assert sum(len(one.key) + len(one.value) + len(one.expected) for one in rejected) < 32_768


def read_kernel_log(text: str) -> None:
    """Lines that any user can have written lead to no repair."""
    log = KernelLog(log_keywords(WATCHERS))
    lines = [*log.feed(text.encode("utf-8", "replace"), NOW), *log.close(NOW)]
    health = Health()
    for origin in (Origin.FILE, Origin.USER):
        read = tuple(LogLine(message=one.message, observed_at=NOW, origin=origin) for one in lines)
        found = [one for each in WATCHERS for one in each.detect(Readings(kernel_log=read))]
        health = fold(health, found)
    assert not health.faults


PARSERS: dict[str, tuple[Parser, list[str]]] = {
    "kernel line": (lambda text: kernel_line(text, NOW), KERNEL_LINES),
    "kernel log": (read_kernel_log, KERNEL_LINES),
    "comment of a Slurm job": (
        read_comment,
        [
            "auto-resume=1 max-retry=3 mode=step checkpoint=/shared/c requeue-request=requeue:1:17",
            '{"APS": {"auto_resume_mode": "requeue", "max_requeue_times": 1}} auto-resume=0',
            '{"holdfast": {"checkpoint": "/c", "note": "x"}} [holdfast: waits]',
        ],
    ),
    "reason of a Slurm node": (
        parse_reason,
        ["Action:Replace [root@2026-11-21T01:38:11]", "Not responding", "holdfast: checking"],
    ),
    "log rules": (read_rules, [RULES, "- {name: loss, logPattern: x}"]),
}
REFUSING: dict[str, tuple[Parser, list[str]]] = {
    "report": (lambda text: parse_value(NodeReport, text), [REPORT]),
    "report of a Slurm node": (
        lambda text: _parsed("node1", text.encode("utf-8", "replace"), (None, None)),
        [SIGNED],
    ),
    "record of a job": (lambda text: parse_value(JobRecord, text), [RECORD]),
    "JSON": (parse_json, [REPORT, RULES]),
    "duration": (parse_duration, ["10m", "1h30m", "1.5h"]),
    "squeue, batch jobs": (lambda text: parse_batch_jobs(text, MARK), [JOB, JOB * 3]),
    "squeue, jobs": (parse_jobs, ["7|RUNNING|node[1-3]\n8+0|PENDING|\n"]),
    "scontrol show node": (
        parse_nodes,
        [
            "NodeName=node1 Arch=x86_64 State=IDLE+DRAIN BootTime=2026-11-20T21:10:29"
            " NodeAddr=127.0.0.1 Partitions=dev Reason=Action:Replace [root@2026-11-21T01:38:11]\n"
        ],
    ),
    "scontrol show reservation": (
        parse_reservations,
        ["ReservationName=r Nodes=node[1-2] EndTime=2026-11-21T01:37:29 State=ACTIVE\n"],
    ),
    "scontrol show step": (
        parse_steps,
        ["StepId=7.0 UserId=0 StartTime=2026-11-21T03:59:17 State=RUNNING NodeList=node[1-2]\n"],
    ),
    "saved nodes": (
        parse_saved,
        [
            "NodeName=node1 Arch=x86_64 State=IDLE+DRAIN\n   NodeAddr=127.0.0.1\n",
            '{"nodes": [{"name": "node1", "state": ["IDLE", "DRAIN"], "reason": "r"}]}',
        ],
    ),
    "hostlist": (expand, ["node[1-3,07],login", "a[1-2]b[3-4]"]),
}
"""Parsers that raise ``ValueError``."""


@pytest.mark.parametrize("name", PARSERS)
@FUZZ
@given(st.data())
def test_parsers_that_refuse_nothing_never_raise(name: str, data: st.DataObject) -> None:
    parse, seeds = PARSERS[name]
    timed(parse, data.draw(mutated(seeds)))


@pytest.mark.parametrize("name", REFUSING)
def test_what_they_are_given_is_valid_before_it_is_changed(name: str) -> None:
    parse, seeds = REFUSING[name]
    for seed in seeds:
        parse(seed)


@pytest.mark.parametrize("name", REFUSING)
@FUZZ
@given(st.data())
def test_other_parsers_raise_only_what_they_document(name: str, data: st.DataObject) -> None:
    parse, seeds = REFUSING[name]
    with suppress(ValueError):
        timed(parse, data.draw(mutated(seeds)))


@FUZZ
@given(mutated(["120", "Mon, 23 Nov 2026 08:00:30 GMT"]))
def test_a_server_can_delay_an_order_by_an_hour_at_most(text: str) -> None:
    assert timedelta(0) <= pause_of(text, NOW, timedelta(seconds=30)) <= timedelta(hours=1)


@pytest.mark.parametrize("text", ["3601", "9" * 30, "Mon, 23 Nov 2026 09:00:01 GMT"])
def test_a_longer_delay_is_cut(text: str) -> None:
    assert pause_of(text, NOW, timedelta(seconds=30)) == timedelta(hours=1)


def test_a_list_of_nodes_has_100000_names_at_most() -> None:
    assert len(expand("a[1-60000],b[1-40000]")) == 100_000
    for text in ("a[1-100001]", "a[1-60000],b[1-40001]", "a[1-400]b[1-400]"):
        with pytest.raises(ValueError, match=r"more than 100000 nodes|invalid range"):
            expand(text)


def test_a_comment_has_16384_characters_and_64_levels_at_most() -> None:
    request = "auto-resume=1"
    for text, is_read in (
        (request.rjust(16_384), True),
        (request.rjust(16_385), False),
        ('{"a":' * 64 + "1" + "}" * 64 + " " + request, True),
    ):
        assert (comments.parse(text).auto_resume is True) is is_read
    nested = '{"APS": {"auto_resume_mode": "requeue"}, "a": ' + "[" * 64 + "]" * 64 + "}"
    assert comments.parse(nested).auto_resume is None
    assert comments.parse(
        nested.replace("[" * 64, "[" * 63).replace("]" * 64, "]" * 63)
    ).auto_resume


@pytest.mark.parametrize(
    ("begin", "problem"),
    [("- ", "nested deeper than 64 levels"), ("", "Expecting property name")],
)
def test_deeply_nested_log_rules_cost_no_quadratic_time(begin: str, problem: str) -> None:
    rules, rejected = rules_of(begin + "{" * 8000 + "}" * 8000, "rules")

    assert rules == ()
    assert problem in rejected[0].expected


@pytest.mark.parametrize("blank", [" ", "\u2028", "[holdfast: ", " [holdfast: x] "])
def test_a_comment_of_blanks_costs_no_quadratic_time(blank: str) -> None:
    timed(read_comment, (blank * LONGEST)[:LONGEST] + " auto-resume=1")
