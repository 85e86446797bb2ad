"""Text of how long a job took to resume, for events and for commands."""

from datetime import timedelta

from holdfast.kit.units import format_duration


def recovery(
    stopped_in: timedelta | None, waited: timedelta | None, started_in: timedelta | None
) -> str:
    """Return how long a job took to resume after a failure; durations not recorded are left out."""
    parts = {"stopped in": stopped_in, "waited": waited, "started in": started_in}
    known = {words: took for words, took in parts.items() if took is not None}
    if not known:
        return ""
    whole = format_duration(sum(known.values(), timedelta(0)))
    each = ", ".join(f"{words} {format_duration(took)}" for words, took in known.items())
    return f"recovered in {whole}: {each}"
