"""A request that changed something is not taken again: by no other thread, nor after a restart."""

import contextlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from api_calls import ADA, PLACE, Api, AuditLines, signed

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.api.audit import AuditTrail
from holdfast.api.call import ClusterCreation
from holdfast.api.identity import Keyring
from holdfast.api.protocol import Protocol
from holdfast.api.signature import WINDOW, InMemorySignatures, SignedRequest
from tests.engines.fake_clusters import ShownCluster
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


@contextlib.contextmanager
def opened(folder: Path) -> Iterator[DatabaseRecords]:
    """The records of one process after the other."""
    url = f"sqlite:///{folder / 'api.db'}"
    with contextlib.closing(Database(url, FakeClock())) as database:
        yield DatabaseRecords(database)


@pytest.fixture(params=["written", "remembered"])
def once(request, tmp_path):
    if request.param == "remembered":
        yield InMemorySignatures()
        return
    with opened(tmp_path) as records:
        yield records


def test_a_word_is_used_once_until_it_is_forgotten(once) -> None:
    def use(word: str, at: datetime) -> bool:
        return once.use_nonce(word, at, at - 2 * WINDOW)

    assert use("a", NOW)
    assert use("b", NOW + MOMENT)
    assert not use("a", NOW + MOMENT)
    again = NOW + MOMENT + 2 * WINDOW
    assert not use("b", again)
    assert use("a", again + 3 * WINDOW)


def test_a_word_that_is_given_back_is_used_once_more(once) -> None:
    assert once.use_nonce("a", NOW, NOW)
    once.release_nonce("a")
    once.release_nonce("b")

    assert once.use_nonce("a", NOW, NOW)
    assert not once.use_nonce("a", NOW, NOW)


def test_who_was_asked_to_come_again_may_do_so_at_once() -> None:
    cluster = ShownCluster("lab", NOW)
    node = cluster.add("n1", NOW)
    api = Api([cluster])
    body = json.dumps({"ClusterName": "lab", "NodeIds": [node.instance_id]}).encode()
    headers = signed(ADA, "SageMaker.BatchRebootClusterNodes", body)
    answers = []
    for is_away in (True, False, False):
        cluster.is_away = is_away
        answers.append(api.send(headers, body)[0])

    assert answers == [503, 200, 400]
    assert len(cluster.requested) == 1


def test_a_request_that_was_refused_is_not_taken_later() -> None:
    cluster = ShownCluster("lab", NOW)
    api = Api([cluster])
    body = json.dumps({"ClusterName": "lab"}).encode()
    headers = signed(ADA, "SageMaker.BatchRebootClusterNodes", body)

    codes = [api.send(headers, body)[1]["__type"] for _ in range(2)]

    assert codes == ["ValidationException", "ThrottlingException"]


def test_of_many_who_use_a_word_one_is_the_first(once) -> None:
    def use(number: int) -> bool:
        return once.use_nonce(f"word {number // 8}", NOW, NOW - WINDOW)

    with ThreadPoolExecutor(8) as pool:
        firsts = list(pool.map(use, range(80)))

    assert firsts.count(True) == 10


def test_a_later_process_does_not_take_it_either(tmp_path) -> None:
    cluster = ShownCluster("lab", NOW)
    node = cluster.add("n1", NOW)
    body = json.dumps({"ClusterName": "lab", "NodeIds": [node.instance_id]}).encode()
    headers = signed(ADA, "SageMaker.BatchRebootClusterNodes", body)
    request = SignedRequest(headers=headers, body=body)

    answers = []
    for _ in range(2):
        with opened(tmp_path) as records:
            protocol = Protocol(
                Keyring((ADA,)),
                PLACE,
                lambda: contextlib.nullcontext([cluster]),
                FakeClock(datetime.now(UTC)),
                AuditTrail(AuditLines(), FakeClock()),
                ClusterCreation(
                    records=records,
                    rejections=lambda _: (),
                    wake=lambda _: None,
                    node_limit=1,
                    has_alarms=False,
                ),
            )
            answers.append(protocol.answer(request).status)

    assert answers == [200, 400]
    assert len(cluster.requested) == 1
