"""Writes the dashboards of the chart.

With ``--check`` it only reports which of them are stale.

A dashboard is rows of panels; the position of a panel follows from its row.
tests/deploy/test_monitoring.py checks that the metrics exist.

Exit code: 0 if they are fresh (or were written), 1 if ``--check`` found one stale.
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parents[1] / "deploy/helm/holdfast/grafana"

_WIDTH: Final = 24
"""Columns of Grafana's grid."""

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_STACKED: Final = {"stacking": {"mode": "normal"}, "fillOpacity": 40, "lineWidth": 1}
_SCRAPED: Final = ("__name__", "container", "endpoint", "namespace", "pod", "instance", "job")
"""Labels that Prometheus adds, which a reader of a table does not need."""

_CLUSTER: Final = 'ClusterName=~"$cluster"'
_NODE: Final = 'node=~"$node"'
_JOB: Final = 'job_name=~"$job_name"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One picture."""

    kind: str
    title: str
    expr: str
    legend: str = ""
    unit: str = "short"
    about: str = ""
    warns: str = ""
    """Its color from 1 on; below it is green."""

    is_stacked: bool = False
    more: Sequence[tuple[str, str]] = ()
    """Further expressions, each with its legend."""

    hidden: Sequence[str] = ()
    """Columns that a table leaves out, beside the time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """One page."""

    name: str
    about: str
    variable: tuple[str, str]
    """What can be chosen on it, and the metric that has a label of that name."""

    rows: Sequence[tuple[int, Sequence[Panel]]]
    """The height of each, and its panels, which share its width."""


def stat(title: str, expr: str, **more: Any) -> Panel:
    """A number."""
    return Panel(kind="stat", title=title, expr=expr, **more)


def lines(title: str, expr: str, legend: str, **more: Any) -> Panel:
    """A line for each series."""
    return Panel(kind="timeseries", title=title, expr=expr, legend=legend, **more)


def areas(title: str, expr: str, legend: str, **more: Any) -> Panel:
    """Areas on top of each other."""
    return replace(lines(title, expr, legend, **more), is_stacked=True)


def table(title: str, expr: str, hidden: Sequence[str], **more: Any) -> Panel:
    """The labels of each series."""
    return Panel(kind="table", title=title, expr=expr, hidden=hidden, **more)


def _health(status: str) -> str:
    return f"sum(max by (NodeName) (hyperpod_node_health_status_{status}{{{_CLUSTER}}}))"


def _count(phases: str) -> str:
    """Of the jobs in some phases."""
    chosen = f'holdfast_job_phase_seconds{{{_JOB},phase=~"{phases}"}}'
    return f"count(max by (job_name) ({chosen}))"


DASHBOARDS: Final = (
    Dashboard(
        name="cluster",
        about="Which nodes are out of service, why, and what is done about it.",
        variable=("cluster", "holdfast_controller_build_info"),
        rows=(
            (
                4,
                (
                    stat("Nodes in service", _health("schedulable")),
                    stat(
                        "Waiting for a reboot",
                        _health("unschedulable_pending_reboot"),
                        warns="orange",
                    ),
                    stat(
                        "Waiting for a replacement",
                        _health("unschedulable_pending_replacement"),
                        warns="orange",
                    ),
                    stat("Joining or under a check", _health("unschedulable"), warns="orange"),
                    stat(
                        "Breaker",
                        "max(holdfast_breaker_open)",
                        warns="red",
                        about="1 while no repair begins, as too many nodes became faulty at once.",
                    ),
                    stat(
                        "Leading controllers",
                        "sum(holdfast_controller_is_leader)",
                        about="One of all replicas.",
                    ),
                ),
            ),
            (
                8,
                (
                    areas("Nodes by phase", "max by (phase) (holdfast_nodes)", "{{phase}}"),
                    areas(
                        "Orders to the provider",
                        "sum by (remedy, outcome) "
                        "(increase(holdfast_repairs_total[$__rate_interval]))",
                        "{{remedy}} {{outcome}}",
                        about="Ordered, postponed because the provider refused, and deferred by "
                        "the budget, the breaker or a person.",
                    ),
                ),
            ),
            (
                8,
                (
                    areas(
                        "Nodes by fleet and state",
                        "max by (fleet, state) (holdfast_fleet_nodes)",
                        "{{fleet}} {{state}}",
                        about="The states of the console; from the API, on all platforms.",
                    ),
                ),
            ),
            (
                8,
                (
                    areas(
                        "Faults by reason",
                        'sum by (reason, remedy) (holdfast_agent_faults{remedy!=""})',
                        "{{reason}} ({{remedy}})",
                        about="As the agents report them.",
                    ),
                    areas(
                        "What happened",
                        "sum by (event) (increase(holdfast_events_total[$__rate_interval]))",
                        "{{event}}",
                        about="docs/reference/events.md describes each of them.",
                    ),
                ),
            ),
            (
                8,
                (
                    table(
                        "Nodes out of service",
                        "max by (NodeName, InstanceId) "
                        f"(hyperpod_node_health_status_schedulable{{{_CLUSTER}}}) == 0",
                        ("Value",),
                    ),
                    lines(
                        "Time of a round",
                        "rate(holdfast_controller_round_seconds_total[$__rate_interval]) "
                        "/ rate(holdfast_controller_rounds_total[$__rate_interval])",
                        "{{instance}}",
                        unit="s",
                    ),
                    lines(
                        "Memory of the controllers",
                        'process_resident_memory_bytes{job="holdfast-controller"}',
                        "{{instance}}",
                        unit="bytes",
                    ),
                ),
            ),
        ),
    ),
    Dashboard(
        name="nodes",
        about="What the agents of single nodes find, and how they are.",
        variable=("node", "holdfast_agent_build_info"),
        rows=(
            (
                4,
                (
                    stat("Agents", f"count(holdfast_agent_build_info{{{_NODE}}})"),
                    stat(
                        "Agents that do not answer",
                        f'count(up{{job="holdfast-agent",{_NODE}}} == 0) or vector(0)',
                        warns="red",
                    ),
                    stat("Faults", f"sum(holdfast_agent_faults{{{_NODE}}})", warns="orange"),
                    stat(
                        "Failures of detectors in the last hour",
                        f"sum(increase(holdfast_agent_detector_failures_total{{{_NODE}}}[1h])) "
                        "or vector(0)",
                        warns="orange",
                    ),
                ),
            ),
            (
                9,
                (
                    table(
                        "Conditions that are True",
                        f"problem_gauge{{{_NODE}}} == 1",
                        ("Value", *_SCRAPED),
                    ),
                    areas(
                        "Problems by reason",
                        f"sum by (reason) (increase(problem_counter{{{_NODE}}}"
                        "[$__rate_interval])) > 0",
                        "{{reason}}",
                        about="As node-problem-detector counts them.",
                    ),
                ),
            ),
            (
                9,
                (
                    areas(
                        "Faults by node",
                        "sum by (node, reason, remedy) "
                        f'(holdfast_agent_faults{{{_NODE},remedy!=""}})',
                        "{{node}} {{reason}} ({{remedy}})",
                    ),
                    lines(
                        "Log lines that may concern a detector",
                        "topk(10, rate(holdfast_agent_log_lines_total"
                        f"{{{_NODE}}}[$__rate_interval]))",
                        "{{node}}",
                        unit="ops",
                    ),
                ),
            ),
            (
                8,
                (
                    lines(
                        "Memory of the agents",
                        f'topk(10, process_resident_memory_bytes{{job="holdfast-agent",{_NODE}}})',
                        "{{node}}",
                        unit="bytes",
                    ),
                    lines(
                        "CPU of the agents",
                        'topk(10, rate(process_cpu_seconds_total{job="holdfast-agent",'
                        f"{_NODE}}}[$__rate_interval]))",
                        "{{node}}",
                        unit="percentunit",
                    ),
                ),
            ),
        ),
    ),
    Dashboard(
        name="jobs",
        about="How jobs get through the faults of their nodes, and what that costs them.",
        variable=("job_name", "holdfast_job_phase_seconds"),
        rows=(
            (
                4,
                (
                    stat("Running", f"{_count('running')} or vector(0)"),
                    stat("Waiting", f"{_count('waiting')} or vector(0)", warns="orange"),
                    stat(
                        "Starting or stopping",
                        f"{_count('starting|stopping')} or vector(0)",
                    ),
                    stat(
                        "Failed permanently in the last day",
                        'sum(increase(holdfast_jobs_finished_total{outcome="failed"}[1d]))',
                        warns="red",
                    ),
                    stat(
                        "Recoveries in the last day",
                        "sum(increase(holdfast_job_recoveries_total[1d]))",
                        about="Attempts that were resumed after a failure.",
                    ),
                    stat(
                        "Mean time of a recovery",
                        "sum(increase(holdfast_job_recovery_seconds_total[1d])) "
                        "/ sum(increase(holdfast_job_recoveries_total[1d]))",
                        unit="s",
                        about="From a failure until all ranks ran again, over the last day.",
                    ),
                ),
            ),
            (
                8,
                (
                    areas(
                        "Failures by cause",
                        "sum by (kind) (increase(holdfast_job_failures_total[$__rate_interval]))",
                        "{{kind}}",
                        about="Retry budget that each used: hardware, application, or none for "
                        "requested restarts.",
                    ),
                    areas(
                        "What recoveries are spent on",
                        "sum by (part) "
                        "(increase(holdfast_job_recovery_seconds_total[$__rate_interval]))",
                        "{{part}}",
                        unit="s",
                        about="Stopping what is left, waiting for nodes, starting anew.",
                    ),
                ),
            ),
            (
                8,
                (
                    lines(
                        "Goodput by job",
                        f"max by (job_name) (holdfast_job_goodput_ratio{{{_JOB}}})",
                        "{{job_name}}",
                        unit="percentunit",
                        about="Productive share of the time of each job; from the API.",
                    ),
                    lines(
                        "Job time by use",
                        "sum by (use) (max by (job_name, use) "
                        f"(holdfast_job_time_seconds{{{_JOB}}}))",
                        "{{use}}",
                        unit="s",
                        about="Time of active and lately ended jobs; from the API.",
                    ),
                ),
            ),
            (
                8,
                (
                    lines(
                        "Jobs by phase",
                        "count by (phase) (max by (job_name, phase) (holdfast_job_phase_seconds"
                        f"{{{_JOB}}}))",
                        "{{phase}}",
                    ),
                    areas(
                        "Attempts and forced ends",
                        "sum(increase(holdfast_job_attempts_total[$__rate_interval]))",
                        "attempts",
                        more=(
                            (
                                "sum(increase(holdfast_job_kills_total[$__rate_interval]))",
                                "killed after their grace period",
                            ),
                        ),
                    ),
                ),
            ),
            (
                9,
                (
                    table(
                        "Jobs that do not run, and since when",
                        "max by (job_name, phase) (holdfast_job_phase_seconds"
                        f'{{{_JOB},phase!="running"}})',
                        (),
                        unit="s",
                    ),
                ),
            ),
        ),
    ),
)


def rendered(board: Dashboard) -> str:
    """As Grafana reads it."""
    content = {
        "uid": f"holdfast-{board.name}",
        "title": f"Holdfast: {board.name}",
        "description": board.about,
        "tags": ["holdfast"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": list(_variables(*board.variable))},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_panels(board)),
    }
    return json.dumps(content, indent=2) + "\n"


def _variables(label: str, metric: str) -> Iterator[Mapping[str, Any]]:
    yield {
        "name": "datasource",
        "label": "Data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {},
    }
    query = f"label_values({metric}, {label})"
    yield {
        "name": label,
        "label": label.partition("_")[0].capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "includeAll": True,
        "multi": True,
        "refresh": 2,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels(board: Dashboard) -> Iterator[Mapping[str, Any]]:
    number = y = 0
    for height, row in board.rows:
        width = _WIDTH // len(row)
        for place, panel in enumerate(row):
            number += 1
            where = {"h": height, "w": width, "x": place * width, "y": y}
            yield {"id": number, "gridPos": where, **_panel(panel)}
        y += height


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    shown: dict[str, Any] = {
        "title": panel.title,
        "type": panel.kind,
        "datasource": _SOURCE,
        "description": panel.about,
        "targets": list(_targets(panel)),
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }
    if panel.warns:
        steps = [{"color": "green", "value": None}, {"color": panel.warns, "value": 1}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    if panel.is_stacked:
        defaults["custom"] = _STACKED
    if panel.kind == "stat":
        shown["options"] = {"reduceOptions": {"calcs": ["lastNotNull"]}}
    if panel.kind == "table":
        hidden = dict.fromkeys(("Time", *panel.hidden), True)
        shown["transformations"] = [{"id": "organize", "options": {"excludeByName": hidden}}]
    return shown


def _targets(panel: Panel) -> Iterator[Mapping[str, Any]]:
    form = {"format": "table", "instant": True} if panel.kind == "table" else {}
    for number, (expr, legend) in enumerate(((panel.expr, panel.legend), *panel.more)):
        yield {
            "refId": chr(ord("A") + number),
            "datasource": _SOURCE,
            "expr": expr,
            "legendFormat": legend,
            **form,
        }


def main(argv: Sequence[str]) -> int:
    """Write stale dashboards, or report them."""
    stale = []
    for board in DASHBOARDS:
        path = FOLDER / f"{board.name}.json"
        text = rendered(board)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in argv:
        print(f"stale: {', '.join(stale)}; run: make reference")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
