"""Metrics of fleets and jobs that the API serves, in Prometheus' text format."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from holdfast.adapters.telemetry.exposition import LabelSet, family, labels
from holdfast.apps.api.console_rows import node_row
from holdfast.apps.views.goodput import Goodput, goodput
from holdfast.apps.views.jobs import JobStatus
from holdfast.apps.views.overview import FleetSnapshot

ENDED: Final = timedelta(hours=1)
"""Time for which an ended job is reported: several scrapes, and old jobs do not pile up."""

_USES: Final = ("productive", "redone", "starting", "waiting", "stopping")


def metrics_text(fleets: Iterable[FleetSnapshot], jobs: Sequence[JobStatus], now: datetime) -> str:
    """Return all metrics: goodput of jobs that are active or ended lately, and nodes by state."""
    recent = [job for job in jobs if job.is_active or now - job.phase_since < ENDED]
    found = [one for one in (goodput(job, now) for job in recent) if one is not None]
    shares = {labels(job_name=one.job): one.share for one in found if one.share is not None}
    nodes: Counter[LabelSet] = Counter(
        labels(fleet=fleet.name, state=node_row(node, {})["look"])
        for fleet in fleets
        if fleet.is_active
        for node in fleet.nodes
    )
    # fmt: off
    return "".join((
        family("holdfast_job_goodput_ratio", "gauge",
            "Productive share of the time of each job, from 0 to 1.", shares),
        family("holdfast_job_time_seconds", "gauge",
            "Time of each job by use.", {key: s for one in found for key, s in _times(one)}),
        family("holdfast_fleet_nodes", "gauge",
            "Nodes by state, as on the console.", nodes),
    ))
    # fmt: on


def _times(one: Goodput) -> Iterable[tuple[LabelSet, float]]:
    for use in _USES:
        yield labels(job_name=one.job, use=use), getattr(one, use).total_seconds()
