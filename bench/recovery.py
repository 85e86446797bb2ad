"""From a fault to the decision, and to a running job."""

import time
from datetime import UTC, datetime, timedelta

from bench.disturbed_run import disturbed_run, percentile
from bench.figure import Figure
from holdfast.adapters.local.faults import (
    XID_TEXTS,
    kill_rank,
    power_off,
    write_kernel_line,
    xid_line,
)
from holdfast.adapters.local.layout import NodeDir

KILLS = 200
REPLACEMENTS = 20


def run() -> list[Figure]:
    """Kill ranks, then break nodes."""
    with disturbed_run() as one:
        kills = [one.disturb(kill_rank) for _ in range(KILLS)]
        decisions = [kill.decision_s * 1000 for kill in kills]
        figures = [
            Figure(
                name="rank exit to decision, p99",
                value=percentile(decisions, 0.99),
                unit="ms",
                goal=50,
            ),
            Figure(
                name="killed rank to all ranks launched again, p99",
                value=percentile([kill.running_s for kill in kills], 0.99),
                unit="s",
                goal=2,
            ),
        ]
        for name, fault in (("XID 74", _xid_74), ("power loss", power_off)):
            seconds = []
            for _ in range(REPLACEMENTS):
                seconds.append(one.disturb(fault).running_s)
                one.wait_for_nodes()
            figures.append(
                Figure(
                    name=f"{name} to all ranks launched again, worst of {REPLACEMENTS}",
                    value=max(seconds),
                    unit="s",
                    goal=2,
                )
            )
    return figures


def _xid_74(node: NodeDir) -> object:
    line = xid_line(74, "0000:b9:00", XID_TEXTS[74])
    uptime = timedelta(seconds=time.monotonic())
    return write_kernel_line(node, line, now=datetime.now(UTC), since_boot=uptime)
