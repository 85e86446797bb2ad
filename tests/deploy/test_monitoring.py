"""Alerts and dashboards ask for metrics that there are."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart import DEPLOY, HELM_CHART

from holdfast.adapters.telemetry.metrics import AgentMetrics
from holdfast.apps.api.metrics import metrics_text
from holdfast.apps.controller.job_metrics import JobMetrics
from holdfast.apps.controller.metrics import ControllerMetrics
from holdfast.apps.run.save_metrics import save_metrics_text
from holdfast.model.checkpoint_manifests import SaveSummary
from holdfast.model.events import RepairPostponed
from holdfast.model.names import Reason
from holdfast.model.nodes import ClusterView, Phase
from tests.engines.control_plane import Built
from tests.ports.fakes import FakeClock, FakeLeadership

ALERTS = HELM_CHART / "prometheus" / "alerts.yaml"
DASHBOARDS = sorted((HELM_CHART / "grafana").glob("*.json"))

BY_PROMETHEUS = {"up"}
WORDS = {"and", "or", "unless", "on", "ignoring", "group_left", "group_right", "by", "without"}


@pytest.fixture(scope="session")
def promtool(built: Built) -> Path:
    return built("promtool")["promtool"]


def exported() -> str:
    """The metrics of an agent, of a controller, of the API and of a watch of saves."""
    controller = ControllerMetrics("training", FakeLeadership(requested=1), ())
    jobs = JobMetrics(FakeLeadership(requested=1), FakeClock())
    agent = AgentMetrics("node-a", list(Reason)).text()
    now = datetime.now(UTC)
    api = metrics_text((), (), now)
    summary = SaveSummary(at=now, step=1, saved_at=now, interval_s=9)
    saves = save_metrics_text("/ckpt", summary, 2)
    return agent + controller.text(tuple(jobs.families())) + api + saves


def metrics_in(expression: str) -> set[str]:
    """The metrics that an expression of PromQL asks for."""
    bare = re.sub(r'"[^"]*"|\{[^}]*\}|\[[^\]]*\]', " ", re.sub(r'"(\\.|[^"\\])*"', " ", expression))
    bare = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    names = re.findall(r"[A-Za-z_:][A-Za-z0-9_:]*(?!\w*\s*\()", bare)
    return set(names) - WORDS


def expressions(dashboard: Path) -> Iterator[str]:
    content = json.loads(dashboard.read_text(encoding="utf-8"))
    for panel in content["panels"]:
        yield from (target["expr"] for target in panel["targets"])


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def known() -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", exported(), re.MULTILINE)) | BY_PROMETHEUS


@pytest.mark.parametrize(
    ("expression", "metrics"),
    [
        ('sum by (a, b) (rate(x_total{c=~"d|e"}[5m])) > 0', {"x_total"}),
        ("(max(x) or vector(0)) == 0", {"x"}),
        ("x == 1 and increase(y[10m]) == 0", {"x", "y"}),
        ('topk(10, x{a="}"})', {"x"}),
    ],
)
def test_metrics_are_found_in_expressions(expression: str, metrics: set[str]) -> None:
    assert metrics_in(expression) == metrics


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_for_metrics_that_there_are(dashboard: Path) -> None:
    content = json.loads(dashboard.read_text(encoding="utf-8"))
    requested = set().union(*map(metrics_in, expressions(dashboard)))
    variables = [one["query"] for one in content["templating"]["list"] if one["type"] == "query"]
    listed = {
        found for one in variables for found in re.findall(r"label_values\((\w+),", one["query"])
    }

    assert requested - known() == set()
    assert listed - known() == set()
    numbers = [panel["id"] for panel in content["panels"]]
    assert len(numbers) == len(set(numbers))
    assert all(panel["datasource"]["uid"] == "${datasource}" for panel in content["panels"])


def test_every_metric_of_the_api_is_on_a_dashboard() -> None:
    text = metrics_text((), (), datetime.now(UTC))
    served = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    plotted = {
        found for path in DASHBOARDS for one in expressions(path) for found in metrics_in(one)
    }

    assert "holdfast_fleet_nodes" in served
    assert served - plotted == set()


def test_the_dashboards_are_what_their_description_says() -> None:
    done = subprocess.run(
        [sys.executable, "tools/render_dashboards.py", "--check"],
        cwd=DEPLOY.parent,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert {path.stem for path in DASHBOARDS} == {"cluster", "nodes", "jobs"}


def test_the_alerts_are_those_of_the_rules() -> None:
    done = subprocess.run(
        [sys.executable, "tools/render_alerts.py", "--check"],
        cwd=DEPLOY.parent,
        check=False,
        capture_output=True,
        encoding="utf-8",
    )

    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_alerts_ask_for_metrics_that_there_are() -> None:
    requested = set().union(*(metrics_in(rule["expr"]) for rule in alerts()))

    assert requested - known() == set()


def test_every_alert_says_what_it_means_and_how_bad_it_is() -> None:
    for rule in alerts():
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_values_of_labels_that_alerts_ask_for_are_those_that_are_exported() -> None:
    metrics = ControllerMetrics("training", FakeLeadership(requested=1), ())
    metrics.emit(
        RepairPostponed(node="a", remedy="replace", error="no", retry_after=timedelta(seconds=1))
    )
    metrics.seen(ClusterView(nodes=()))
    text = metrics.text(())

    assert 'holdfast_repairs_total{outcome="postponed",remedy="reboot"} 0' in text
    assert 'holdfast_repairs_total{outcome="postponed",remedy="replace"} 1' in text
    assert f'holdfast_nodes{{phase="{Phase.SCHEDULABLE}"}}' in text


def test_every_alert_has_a_case_in_which_it_speaks_and_one_in_which_it_is_silent() -> None:
    cases = yaml.safe_load((HELM_CHART / "prometheus/alerts_test.yaml").read_text(encoding="utf-8"))
    verdicts = [
        (one["alertname"], bool(one.get("exp_alerts")))
        for case in cases["tests"]
        for one in case["alert_rule_test"]
    ]

    named = {rule["alert"] for rule in alerts()}
    assert {name for name, speaks in verdicts if speaks} == named
    assert {name for name, speaks in verdicts if not speaks} == named


def test_promtool_takes_the_alerts_and_their_cases(promtool: Path) -> None:
    for arguments in (
        ["check", "rules", ALERTS],
        ["test", "rules", ALERTS.parent / "alerts_test.yaml"],
    ):
        done = subprocess.run(
            [promtool, *arguments], check=False, capture_output=True, encoding="utf-8"
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_takes_the_expressions_of_dashboards(promtool: Path, tmp_path: Path) -> None:
    found = [one for dashboard in DASHBOARDS for one in expressions(dashboard)]
    rules = [
        {"record": f"panel:{number}", "expr": one.replace("$__rate_interval", "1m")}
        for number, one in enumerate(found)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "a", "rules": rules}]}), encoding="utf-8")

    done = subprocess.run(
        [promtool, "check", "rules", path], check=False, capture_output=True, encoding="utf-8"
    )

    assert done.returncode == 0, done.stdout + done.stderr
