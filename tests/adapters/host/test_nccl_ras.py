"""NCCL's RAS over its socket: a stand-in that speaks the documented protocol answers."""

import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from holdfast.adapters.host.nccl_ras import NoReport, read_report
from holdfast.decisions.hang_verdict import VerdictKind
from holdfast.decisions.rank_snapshots import RankSnapshot
from holdfast.decisions.ras_verdict import ras_verdict


def a_rank(rank: int, count: int = 7) -> dict:
    return {
        "rank": rank, "host": "gpu-1", "pid": 100 + rank, "cuda_dev": rank, "nvml_dev": rank,
        "status": {"init_state": 0, "async_error": 0, "finalize_called": False},
        "collective_counts": {"Broadcast": 2, "AllReduce": count},
    }  # fmt: skip


def document(*ranks: dict, missing: tuple[dict, ...] = ()) -> str:
    size = len(ranks) + len(missing)
    world = {
        "hash": "0x1", "size": size, "ranks_count": len(ranks), "ranks": list(ranks),
        "missing_ranks_count": len(missing), "missing_ranks": list(missing),
    }  # fmt: skip
    part = {**world, "size": 1, "ranks": [a_rank(0, 99)], "missing_ranks": []}
    return json.dumps({"nccl_version": "2.28.9", "communicators": [part, world]})


@contextmanager
def ras(report: str, *, has_json: bool = True) -> Iterator[dict[str, str]]:
    """A server of RAS; gives the variables with its address."""

    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            for line in self.rfile:
                words = line.decode().upper().split()
                if words[:2] == ["CLIENT", "PROTOCOL"]:
                    self.wfile.write(b"SERVER PROTOCOL 3\n")
                elif words[0] == "TIMEOUT" or (words[:2] == ["SET", "FORMAT"] and has_json):
                    self.wfile.write(b"OK\n")
                elif words == ["VERBOSE", "STATUS"]:
                    self.wfile.write(report.encode())
                    return
                else:
                    self.wfile.write(b"ERROR: unknown command\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Session) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"NCCL_RAS_ADDR": f"127.0.0.1:{server.server_address[1]}"}
        server.shutdown()


HERE = [RankSnapshot(rank=rank, node="gpu-1", pid=100 + rank, state="S") for rank in range(4)]


def test_a_rank_that_is_behind_in_its_collectives_is_named() -> None:
    with ras(document(a_rank(0), a_rank(1), a_rank(2, 6), a_rank(3))) as environment:
        found = read_report(environment)

    verdict = ras_verdict(found, found, HERE)

    assert verdict is not None
    assert (verdict.kind, verdict.ranks) == (VerdictKind.ABSENT, (2,))
    assert verdict.text == "rank 2 has begun 6 AllReduce, the others 7"


def test_ranks_that_do_not_respond_are_named() -> None:
    gone = {"rank": 3, "host": "gpu-1", "pid": 103, "status": {"unresponsive": True}}
    with ras(document(*map(a_rank, range(3)), missing=(gone,))) as environment:
        found = read_report(environment)

    verdict = ras_verdict(found, found, HERE)

    assert verdict is not None
    assert (verdict.ranks, verdict.text) == ((3,), "rank 3 does not respond to NCCL")


def test_counts_that_change_equal_counts_and_other_jobs_show_nothing() -> None:
    reports = []
    for counts in ((7, 6), (8, 7), (7, 7)):
        with ras(document(*(a_rank(rank, one) for rank, one in enumerate(counts)))) as environment:
            reports.append(read_report(environment))
    first, second, equal = reports

    assert ras_verdict(first, second, HERE) is None
    assert ras_verdict(equal, equal, HERE) is None
    assert ras_verdict((), (), HERE) is None
    strangers = [RankSnapshot(rank=0, node="n", pid=9, state="S")]
    assert ras_verdict(first, first, strangers) is None
    renumbered = [RankSnapshot(rank=1, node="n", pid=100, state="S")]
    assert ras_verdict(first, first, renumbered) is None


@pytest.mark.parametrize(
    "environment",
    [
        {"NCCL_RAS_ENABLE": "0"},
        {"NCCL_RAS_ADDR": "nonsense"},
        {"NCCL_RAS_ADDR": "127.0.0.1:1"},
        {"NCCL_RAS_ADDR": "127.0.0.1:99999"},
    ],
)
def test_without_ras_there_is_no_report(environment: dict[str, str]) -> None:
    with pytest.raises(NoReport):
        read_report(environment)


@pytest.mark.parametrize(
    "report", ["", "{", "[]", "{}", '{"communicators": [{"size": "x"}]}', "[" * 100_000]
)
def test_a_report_of_another_form_is_refused(report: str) -> None:
    with ras(report) as environment, pytest.raises(NoReport):
        read_report(environment)


def test_a_release_without_json_is_refused_with_the_reason() -> None:
    with ras("text", has_json=False) as environment, pytest.raises(NoReport, match=r"2\.28\.7"):
        read_report(environment)
