"""Writes the alert rules of the chart from ``holdfast/decisions/alert_rules.py``.

With ``--check`` it only reports whether they are stale.

Exit code: 0 if they are fresh (or were written), 1 if ``--check`` found them stale.
"""

import sys
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import yaml

from holdfast.decisions.alert_rules import RULES, AlertRule
from holdfast.kit.units import format_duration

ALERTS: Final = Path(__file__).parents[1] / "deploy/helm/holdfast/prometheus/alerts.yaml"

_HEAD: Final = """\
# Alerts on problems that Holdfast cannot repair by itself. The scrape jobs are called
# holdfast-agent and holdfast-controller, and agents have the label `node`, as in the PodMonitors of
# the chart. Written by tools/render_alerts.py; the console evaluates the same rules.
"""


def main(argv: list[str]) -> int:
    """Write or check the file."""
    text = _HEAD + yaml.safe_dump(
        {"groups": [{"name": "holdfast", "rules": [_rule(one) for one in RULES]}]},
        sort_keys=False,
        width=100,
    )
    if ALERTS.read_text(encoding="utf-8") == text:
        return 0
    if "--check" in argv:
        print(f"{ALERTS.name} is stale; run: make reference")
        return 1
    ALERTS.write_text(text, encoding="utf-8")
    return 0


def _rule(one: AlertRule) -> dict[str, Any]:
    lasts = {"for": format_duration(one.lasts)} if one.lasts > timedelta(0) else {}
    return {
        "alert": one.name,
        "expr": one.expr,
        **lasts,
        "labels": {"severity": one.severity.value},
        "annotations": {"summary": one.summary, "description": one.description},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
