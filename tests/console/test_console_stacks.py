"""The page of a hang: the stacks of its ranks side by side."""

from datetime import UTC, datetime

from page_checks import violations
from playwright.sync_api import expect
from test_console_logs import SHOTS

from holdfast.adapters.host.evidence_file import write_evidence
from holdfast.decisions.hang_evidence import HangEvidence, RankEvidence
from holdfast.decisions.hang_verdict import verdict
from holdfast.decisions.kernel_lines import KernelLine, NodeKernelLog
from holdfast.decisions.rank_snapshots import Frame, RankSnapshot

WAITS = (
    Frame(function="all_reduce", file="/x/torch/distributed/distributed_c10d.py", line=1),
    Frame(function="main", file="/w/train.py", line=9),
)
READS = (Frame(function="reads_a_batch", file="/w/train.py", line=7),)


def test_the_stacks_of_a_hang_are_side_by_side(console, visit) -> None:
    console.runs.add("hung", nodes=(6,), ranks=(6,))
    seen = [
        RankSnapshot(rank=rank, node="i-1", pid=9, state="S", frames=READS if rank == 5 else WAITS)
        for rank in range(8)
    ]
    evidence = HangEvidence(
        job="hung",
        attempt=1,
        suspected_at=datetime.now(UTC),
        evidence="no new step for 3m",
        verdict=verdict(seen),
        ranks=tuple(RankEvidence(snapshot=one) for one in seen),
        kernel=(
            NodeKernelLog(
                node="i-1", lines=(KernelLine(at=datetime.now(UTC), text="NVRM: <b>Xid</b>"),)
            ),
            NodeKernelLog(node="i-2"),
        ),
    )
    write_evidence(console.runs.directory("hung").evidence(1), evidence)

    page = visit("ada", "stacks/hung")
    columns = page.get_by_role("region", name="Stacks side by side").locator("section")

    expect(page.get_by_text("rank 5 on i-1 never entered all_reduce").first).to_be_visible()
    expect(columns).to_have_count(2)
    expect(columns.nth(0)).to_contain_text("1 rank: 5")
    expect(columns.nth(0)).to_contain_text("the others wait for it")
    expect(columns.nth(0)).to_contain_text("reads_a_batch (/w/train.py)")
    expect(columns.nth(1)).to_contain_text("7 ranks: 0, 1, 2, 3, 4, 6, 7")
    expect(page.get_by_text("NVRM: <b>Xid</b>")).to_be_visible()
    expect(page.get_by_text("No warnings: i-2")).to_be_visible()
    first, second = (columns.nth(place).bounding_box() for place in (0, 1))
    assert first["y"] == second["y"]
    assert first["x"] < second["x"]
    page.screenshot(path=SHOTS / "stacks.png", full_page=True)
    found = violations(page)
    assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_a_job_that_never_hung_says_so(console, visit) -> None:
    console.runs.add("runs", nodes=(6,), ranks=(6,))

    page = visit("ada", "stacks/runs")

    expect(page.get_by_role("alert").last).to_contain_text("no evidence, because no attempt hung")
