"""Hostile text: valid text with parts removed, repeated or replaced, and a limit on its cost."""

import time
from collections.abc import Callable

from effort import examples
from hypothesis import Phase, settings
from hypothesis import strategies as st

Parser = Callable[[str], object]
CPU_S = 2.0
"""Limit of CPU time for a text of ``LONGEST`` characters; without a flaw it is under 0.2 s."""

LONGEST = 1 << 16
FUZZ = settings(
    max_examples=examples(300),
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking text that takes long takes hours
)
TOKENS = [
    "", "\0", "\n", "\r", "\x1b[0m", "\x85", "\u2028", "\ud800", "\U0010ffff", "\\ud800", "\\u0000",
    "[", "]", "{", "}", '"', "\\", "'", "&a [*a]", "*a", "!!python/object:os.system ", "%", "|",
    "=", ":", ",", "-", " ", "[1-99999999]", "[0-99999,0-99999]", "9" * 5000, "1e999", "NaN",
    "0001-01-01T00:00:00", "9999-12-31T23:59:59", "9999-12-31T23:59:59+23:59", "Action:Replace",
    "[" * 2000, '{"a":' * 2000, "(" * 50, "a" * 5000, "P99999999999D", "99999999999d",
    "Mon, 01 Jan 99999999999 00:00:00 GMT", "Mon, 01 Jan 2026 00:00:00 +99999999999999999",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, seeds: list[str]) -> str:
    """Valid text with some parts removed, repeated or replaced."""
    text = draw(st.sampled_from(seeds) | st.text(max_size=40))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 2, 8, 64])))
        inserted = draw(st.sampled_from(TOKENS) | st.text(max_size=6) | st.just(text[start:end]))
        times = draw(st.sampled_from([1, 1, 1, 2, 1000]))
        text = (text[:start] + (inserted * times)[:LONGEST] + text[end:])[:LONGEST]
    return text


def timed(parse: Parser, text: str) -> None:
    began = time.process_time()
    try:
        parse(text)
    finally:
        took = time.process_time() - began
    assert took < CPU_S, f"{took:.1f} s for {len(text)} characters"
