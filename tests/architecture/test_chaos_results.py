"""The documentation shows the recorded results of random disturbances."""

from pathlib import Path

from tests.chaos.results import ROWS, TITLES, recorded, rendered

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/explanation/security.md"


def test_the_page_shows_the_recorded_results() -> None:
    assert rendered(recorded()) in PAGE.read_text(encoding="utf-8")


def test_the_recorded_results_are_complete() -> None:
    found = recorded()

    assert set(found) <= set(TITLES)
    assert found
    for cells in found.values():
        assert tuple(cells) == ROWS
        assert cells["schedules"] > 0
        assert cells["real faults repaired"] > 0
