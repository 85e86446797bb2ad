"""Sentences of events: complete, on one line, found again by their reason code."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.wording import log_line, sentence
from holdfast.model import events
from holdfast.model.events import Event
from tests.ports.builders import NOW

KINDS = [
    kind
    for kind in vars(events).values()
    if isinstance(kind, type) and issubclass(kind, Event) and kind is not Event
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_event_has_a_line_with_its_reason_code_and_its_subject(kind, data) -> None:
    event = data.draw(st.builds(kind))
    line = log_line(event)

    assert line == f"{kind.__name__}: {sentence(event)}"
    assert sentence(event) != event.name, "no sentence was written for it"


def test_a_sentence_names_the_subject_first_and_what_happened() -> None:
    assert log_line(events.RepairOrdered(node="gpu-1", remedy="reboot", reason="X")) == (
        "RepairOrdered: gpu-1: reboot ordered"
    )
    deferred = events.RepairDeferred(node="gpu-1", why="limit used (1 of 1)", times=3)
    assert sentence(deferred) == (
        "gpu-1: repair deferred (3 times since the last report): limit used (1 of 1)"
    )
    assert sentence(events.NodeVanished(node="gpu-1", reason="X")) == (
        "gpu-1 disappeared; closing repair (X)"
    )
    silent = events.NodeAgentSilent(node="gpu-1", since=NOW - timedelta(minutes=1))
    assert sentence(silent).startswith("gpu-1: Holdfast agent silent since 2026-01-01 11:59:00 UTC")
