"""Prometheus metrics of the background verification of saves."""

from collections.abc import Callable

from holdfast.adapters.telemetry.exposition import (
    CONTENT_TYPE,
    Samples,
    family,
    labels,
    process_families,
)
from holdfast.adapters.telemetry.http_server import HttpResponse, HttpServer
from holdfast.apps.listen_address import ListenAddress
from holdfast.decisions.save_age import steps_at_risk
from holdfast.model.checkpoint_manifests import SaveSummary


def serve_metrics(
    address: ListenAddress,
    folder: str,
    read: Callable[[], SaveSummary | None],
    step: Callable[[], int | None],
) -> HttpServer:
    """Serve ``/metrics`` in a thread.

    Args:
        address: address to listen on.
        folder: the directory, a label of each metric.
        read: returns the summary of the directory.
        step: returns the last step that the job reported.

    Raises:
        ConfigError: the address cannot be used.

    """

    def page() -> HttpResponse:
        return HttpResponse(save_metrics_text(folder, read(), step()), content_type=CONTENT_TYPE)

    return HttpServer(address.host, address.port, {"/metrics": page})


def save_metrics_text(folder: str, summary: SaveSummary | None, step: int | None) -> str:
    """Return the metrics of a directory; without a summary, those of the process alone."""
    own = labels(directory=folder)
    if summary is None:
        return "".join(process_families())
    at = summary.saved_at
    gauges: dict[str, tuple[str, float | None]] = {
        "holdfast_checkpoint_newest_verified_timestamp_seconds": (
            "Time of the save of the newest checkpoint that a job can resume from.",
            None if at is None else at.timestamp(),
        ),
        "holdfast_checkpoint_save_interval_seconds": (
            "Median time between the newest saves.",
            summary.interval_s,
        ),
        "holdfast_checkpoint_steps_at_risk": (
            "Steps since the newest checkpoint that a job can resume from.",
            steps_at_risk(summary, step),
        ),
        "holdfast_checkpoint_reported_incomplete": (
            "Checkpoints that the script reported as saved and that are incomplete now.",
            summary.incomplete,
        ),
        "holdfast_checkpoint_verification_seconds": (
            "Duration of the last verification.",
            summary.seconds,
        ),
    }
    lines = [
        family(name, "gauge", about, {own: value})
        for name, (about, value) in gauges.items()
        if value is not None
    ]
    counts: Samples = {
        labels(directory=folder, result="good"): summary.good,
        labels(directory=folder, result="bad"): summary.bad,
    }
    name = "holdfast_checkpoint_verifications_total"
    lines.append(
        family(name, "counter", "Checkpoints that were verified after their save.", counts)
    )
    return "".join([*lines, *process_families()])
