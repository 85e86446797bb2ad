"""Results of deep health checks in the format of HyperPod's ``DeepHealthCheckResults`` stream."""

import json
import os
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast.model.deep_checks import Outcome
from holdfast.model.health import Remedy
from holdfast.model.node_checks import NodeCheck

_REGION: Final = "AWS_REGION"
_LONGEST: Final = 500
"""Maximum characters of a part's message."""


def append_results(path: Path, checks: Iterable[NodeCheck], now: datetime) -> None:
    """Append one JSON object per node; raises ``OSError`` if that fails."""
    lines = "".join(f"{line(one, now)}\n" for one in checks)
    with path.open("a", encoding="utf-8") as stream:
        stream.write(lines)


def line(check: NodeCheck, now: datetime) -> str:
    """Return one result; a failure has HyperPod's wording, and the node."""
    failed = [part for part in check.parts if part.outcome is Outcome.FAILED]
    kind = check.instance_type or "unknown"
    where = f"Region: {os.environ.get(_REGION, 'unknown')}, InstanceType: {kind}."
    if failed:
        why = "; ".join(f"{part.name}: {part.detail}" for part in failed)[:_LONGEST]
        remedies = {finding.remedy for part in failed for finding in part.findings}
        act = "Reboot" if remedies and Remedy.REPLACE not in remedies else "Replace"
        reported = f"Encountered FaultyInstance. {act} the Instance. {where} ERROR:{why}"
    else:
        reported = f"Deep health check {check.outcome}. {where}"
    return json.dumps(
        {
            "level": "error" if failed else "info",
            "ts": now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "msg": reported,
            "node": check.node,
        }
    )
