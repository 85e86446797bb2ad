"""Rows of the console's pages for large fleets."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime

from holdfast.apps.api.console_tables import RANKS, SAME_TOPIC, job_details, tables_of
from holdfast.apps.views.jobs import JobDetails, RankStatus
from holdfast.apps.views.overview import attention
from tests.engines.made_console import FLEET, MadeFleet, name_of


def test_many_items_of_one_topic_are_counted_and_hide_no_others() -> None:
    fleet = MadeFleet(2000, 0)
    seen, now = fleet.snapshot(), datetime.now(UTC)
    waiting = replace(fleet.jobs[0], phase="waiting", nodes=9999)
    seen = replace(seen, jobs=[waiting, *fleet.jobs[1:]])
    urgent = attention(seen.fleets, seen.jobs, now)

    rows = list(tables_of(seen, now)["attention"].values())
    topics = Counter(row["topic"] for row in rows)
    assert topics == {"job stalled": 1, "repair waits": SAME_TOPIC}
    assert sum(1 + row.get("more", 0) for row in rows) == len(urgent) > 10
    assert [row for row in rows if "more" in row] == [rows[-1]]


def test_details_of_a_large_job_are_bounded() -> None:
    job = replace(MadeFleet(12, 0).jobs[0], placement=tuple(map(name_of, range(5000))))
    job = replace(
        job, attempts=tuple(replace(one, placement=job.placement) for one in job.attempts)
    )
    now = datetime.now(UTC)
    placed = job_details(JobDetails(status=job), FLEET, now)
    ranks = tuple(
        RankStatus(rank=one, node="n", name=f"{one}", state="Running") for one in range(2000)
    )
    ranked = job_details(JobDetails(status=job, ranks=ranks), FLEET, now)

    assert (len(placed["placement"]), placed["all_ranks"]) == (RANKS, 5000)
    assert (len(ranked["ranks"]), ranked["all_ranks"]) == (RANKS, 2000)
    assert {len(one["placement"]) for one in placed["attempts"]} == {0}
