"""No annotation of a job or of a node ends the controller, or repairs a node by itself."""

import sys
from pathlib import Path

import pytest
from hostile import FUZZ, TOKENS, mutated, timed
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kubernetes.client.values import compact_json
from holdfast.adapters.kubernetes.jobs.requests import requests_of
from holdfast.adapters.kubernetes.nodes.encoding import parse_annotations
from holdfast.adapters.kubernetes.nodes.hardware import pack, unpack
from holdfast.kit.units import DAY
from holdfast.model import names
from holdfast.model.names import (
    AGENT_HEALTH_STATUS,
    APP_MAX_RETRY_COUNT,
    ATTEMPT,
    BAD_LOSS,
    CONFIG,
    CORDONED,
    FAULT_GRACE,
    HARDWARE,
    HEARTBEAT_FILE,
    HEARTBEAT_TIMEOUT,
    HOLD,
    JOB_RECORD,
    JOB_STATUS,
    KEEP_PODS,
    LOG_MONITORING,
    LOG_MONITORING_CONFIG_MAP,
    LOSS_ACTION,
    LOSS_TOLERANCE,
    LOSS_WINDOW,
    NODE_RANK,
    OWN_PREFIX,
    PENDING_PATCH,
    RECORD,
    RECORD_OF,
    REPLACES,
    REPORT,
    REQUEST,
    RESTART_REASON,
    SCALE_DOWN,
    SKIP_STEPS,
    STARTUP_TIMEOUT,
)
from holdfast.model.requests import Verb
from tests.engines.recorded_devices import devices
from tests.ports.builders import NOW, a_request

sys.path.insert(0, str(Path(__file__).parents[1] / "kubernetes"))
import job_objects
import node_objects
from test_hostile_text import RECORD as JOB_RECORD_TEXT
from test_hostile_text import REPORT as NODE_REPORT_TEXT
from test_hostile_text import RULES

JOB = {
    job_objects.LABELS.enable_job_auto_resume: "true",
    job_objects.LABELS.job_max_retry_count: "3",
    APP_MAX_RETRY_COUNT: "2",
    FAULT_GRACE: "10m",
    HEARTBEAT_FILE: "/tmp/heartbeat",
    HEARTBEAT_TIMEOUT: "5m",
    STARTUP_TIMEOUT: "1h",
    KEEP_PODS: "false",
    LOG_MONITORING: RULES,
    LOG_MONITORING_CONFIG_MAP: "log-rules",
    JOB_RECORD: JOB_RECORD_TEXT,
    RECORD_OF: "job-uid",
    JOB_STATUS: "running",
    LOSS_ACTION: "rollback",
    LOSS_WINDOW: "20",
    LOSS_TOLERANCE: "3.5",
}
NODE = {
    RECORD: '{"phase": "schedulable", "phase_since": "2026-01-01T12:00:00Z"}',
    REPORT: NODE_REPORT_TEXT,
    HARDWARE: pack(devices(NOW)) or "",
    REQUEST: compact_json(a_request(Verb.REBOOT)),
    HOLD: "maintenance",
    CORDONED: "true",
    REPLACES: "node-0",
    AGENT_HEALTH_STATUS: "Schedulable",
}
TAINTS = {PENDING_PATCH, SCALE_DOWN}
OF_PODS = {ATTEMPT, RESTART_REASON, SKIP_STEPS, BAD_LOSS, NODE_RANK, CONFIG}
"""Names on pods alone. The controller writes them and parses none: it compares them."""


OTHERS = st.sampled_from(TOKENS) | st.integers().map(str) | st.floats().map(str)


@st.composite
def annotated(draw: st.DrawFn, given_ones: dict[str, str]) -> dict[str, str]:
    """The annotations, of which some are missing and some are changed."""
    kept = draw(st.sets(st.sampled_from(sorted(given_ones)), min_size=1))
    changed = draw(st.sets(st.sampled_from(sorted(kept)), min_size=1))
    return {
        key: draw(mutated([given_ones[key]]) | OTHERS) if key in changed else given_ones[key]
        for key in sorted(kept)
    }


def read_job(annotations: dict[str, str]) -> None:
    requests = job_objects.requests(job_objects.a_state(annotations=annotations))
    assert 0 <= requests.max_retries <= 1000
    assert 0 <= requests.max_app_retries <= 1000
    assert len(requests.log_rules) <= 20
    assert requests.fault_grace is None or requests.fault_grace <= 7 * DAY
    if (heartbeat := requests.heartbeat) is not None:
        assert heartbeat.path.startswith("/")
        assert len(heartbeat.path) <= 256
        assert heartbeat.timeout <= 7 * DAY
    said = sum(len(one.key) + len(one.value) + len(one.expected) for one in requests.rejected)
    assert said < 65_536


@FUZZ
@given(annotated(JOB))
def test_no_annotation_of_a_job_makes_the_controller_fail(annotations: dict[str, str]) -> None:
    timed(lambda _: read_job(annotations), "")


@FUZZ
@given(annotated(NODE))
def test_no_annotation_of_a_node_makes_the_controller_fail(annotations: dict[str, str]) -> None:
    node = node_objects.a_node_object(annotations=annotations)
    state = node_objects.state_of(node)

    timed(lambda _: parse_annotations(state, node_objects.CONVENTIONS, NOW), "")
    timed(lambda _: unpack(node), "")


def test_each_published_annotation_is_changed() -> None:
    published = {
        name
        for name in vars(names).values()
        if isinstance(name, str) and name.startswith(f"{OWN_PREFIX}/")
    }

    assert (
        published == {key for key in {*JOB, *NODE} if key.startswith(OWN_PREFIX)} | OF_PODS | TAINTS
    )


@pytest.mark.parametrize("key", sorted({*JOB} - {JOB_STATUS}))
def test_what_a_job_is_given_is_valid_before_it_is_changed(key: str) -> None:
    beside = {HEARTBEAT_FILE: JOB[HEARTBEAT_FILE], RECORD_OF: JOB[RECORD_OF], key: JOB[key]}
    state = job_objects.a_state(annotations=beside)

    assert requests_of(state, job_objects.LABELS).rejected == ()


def test_what_a_node_is_given_is_valid_before_it_is_changed() -> None:
    node = node_objects.a_node_object(annotations=NODE)
    parsed = parse_annotations(node_objects.state_of(node), node_objects.CONVENTIONS, NOW)

    assert unpack(node) == devices(NOW)
    assert parsed.rejected == ()
    assert None not in (parsed.record, parsed.report, parsed.request)
