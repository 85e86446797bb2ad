"""What people ask for is kept, the same in SQLite and in PostgreSQL."""

import contextlib
import math
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import create_engine, insert, select, text

from holdfast.adapters.database import records as records_module
from holdfast.adapters.database.connection import Database, recover_file
from holdfast.adapters.database.policies import DatabasePolicies
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.adapters.database.schema import CLUSTERS, POLICIES, REQUESTS
from holdfast.api.problems import ValidationException
from holdfast.model.clusters import (
    ClusterEvent,
    DesiredCluster,
    DesiredGroup,
    GroupMachine,
    LifecycleScripts,
    MachineGroup,
    MachineState,
    Member,
)
from holdfast.model.errors import BackendError, ConfigError, StorageFull
from holdfast.model.sagemaker import ClusterStatus
from holdfast.model.team_queues import ComputeQuota, InstanceAmount, Policy
from holdfast.ports.cluster_records import Change, RecordedRequest
from tests.ports.fakes import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ASKED = RecordedRequest(
    at=NOW, person="ada", operation="CreateCluster", request={"ClusterName": "lab"}
)
HOURS = timedelta(hours=8)


@pytest.fixture
def database(url) -> Iterator[Database]:
    database = Database(url, FakeClock(NOW))
    yield database
    database.close()


@pytest.fixture
def records(database) -> DatabaseRecords:
    return DatabaseRecords(database)


def a_cluster(name: str = "lab", **changes) -> DesiredCluster:
    scripts = LifecycleScripts(source="s3://b", on_create="x.sh")
    made_of = MachineGroup(cluster=name, name="gpu", scripts=scripts, spec={"a": [1, {"b": True}]})
    values = {
        "name": name,
        "uid": "0123456789ab",
        "created_at": NOW,
        "status": ClusterStatus.CREATING,
        "since": NOW,
        "groups": (DesiredGroup(made_of=made_of, target=2),),
        "requested": {"VpcConfig": {"Subnets": ["s"]}},
    }
    return DesiredCluster(**{**values, **changes})


def a_member(number: int) -> Member:
    machine = GroupMachine(
        id=f"i-{number:017x}", name=f"n{number}", state=MachineState.JOINING, launched_at=NOW
    )
    return Member(
        logical_id=f"gpu-{number}", group="gpu", added_at=NOW, status_since=NOW, machine=machine
    )


def cluster_event(number: int, at: datetime = NOW) -> ClusterEvent:
    return ClusterEvent(id=str(uuid.UUID(int=number)), at=at, description=f"step {number}")


def raised(held, answer=None) -> Change:
    """The first group with one node more."""
    cluster = held.cluster
    group = cluster.groups[0]
    grown = replace(cluster, groups=(replace(group, target=group.target + 1),))
    target = grown.groups[0].target
    return Change(cluster=grown, members=held.members, answer=answer or {"target": target})


def test_what_was_written_is_read_by_everybody(url, records) -> None:
    assert records.load("lab") is None
    assert records.create(a_cluster(), [cluster_event(1)], {"b": "2", "a": "1"}, ASKED)

    other = Database(url, FakeClock(NOW))
    found = DatabaseRecords(other)
    assert found.load("lab").cluster == a_cluster()
    assert list(found.tags("lab").items()) == [("a", "1"), ("b", "2")]
    assert found.cluster_events("lab") == [cluster_event(1)]
    assert found.names() == ["lab"]
    other.close()


def test_a_name_is_given_once(records) -> None:
    assert records.create(a_cluster(), [], {}, ASKED)

    assert not records.create(a_cluster(status=ClusterStatus.FAILED), [cluster_event(1)], {}, ASKED)
    assert records.load("lab").cluster == a_cluster()
    assert records.cluster_events("lab") == []


def test_a_save_wins_only_over_what_it_has_read(records) -> None:
    records.create(a_cluster(), [], {}, ASKED)
    held = records.load("lab")
    members = (a_member(1), a_member(2))

    assert records.save(held, held.cluster, members, [cluster_event(1)])
    assert not records.save(held, None, (), [cluster_event(2)])
    found = records.load("lab")
    assert found.members == members
    moved = replace(members[0], message="moved")
    assert records.save(found, found.cluster, [moved], [cluster_event(1), cluster_event(3)])
    assert records.load("lab").members == (moved,)
    assert [one.description for one in records.cluster_events("lab")] == ["step 1", "step 3"]


def test_nothing_is_left_of_a_cluster_that_is_gone_and_another_may_have_its_name(records) -> None:
    records.create(a_cluster(), [cluster_event(1)], {"a": "1"}, ASKED)
    records.create(a_cluster("other"), [], {}, ASKED)
    records.change("lab", raised, ASKED, nonce="t", nonce_since=NOW - HOURS)
    old = records.load("lab")
    assert records.save(old, None, (), ())

    assert (records.load("lab"), records.names()) == (None, ["other"])
    later = a_cluster(created_at=NOW + HOURS)
    assert records.create(later, [], {}, ASKED)
    assert records.load("lab").cluster == later
    assert (records.tags("lab"), records.cluster_events("lab")) == ({}, [])
    assert not records.save(old, None, (), ())
    again = records.change("lab", raised, ASKED, nonce="t", nonce_since=NOW - HOURS)
    assert again == {"target": 3}
    assert records.load("lab").cluster.groups[0].target == 3


def test_a_change_that_raises_changes_nothing(records, database) -> None:
    records.create(a_cluster(), [], {}, ASKED)
    before = records.load("lab")

    def refuse(held):
        raise ConfigError("no")

    with pytest.raises(ConfigError):
        records.change("lab", refuse, ASKED, nonce="t", nonce_since=NOW)
    assert records.load("lab") == before
    assert records.change("nowhere", refuse, ASKED) is None
    with database.reading() as connection:
        assert len(connection.execute(select(REQUESTS)).all()) == 1


def test_a_token_names_one_request_for_as_long_as_it_is_kept(records, database) -> None:
    records.create(a_cluster(), [], {}, ASKED)

    def ask(at: datetime, nonce: str = "t"):
        requested = replace(ASKED, at=at)
        return records.change("lab", raised, requested, nonce=nonce, nonce_since=at - HOURS)

    assert [ask(NOW)["target"], ask(NOW + HOURS)["target"]] == [3, 3]
    assert ask(NOW, nonce="u")["target"] == 4
    assert ask(NOW + HOURS + timedelta(microseconds=1))["target"] == 5
    assert records.load("lab").cluster.groups[0].target == 5
    with database.reading() as connection:
        assert {row.person for row in connection.execute(select(REQUESTS))} == {"ada"}


def test_of_many_changes_at_once_none_is_lost(url) -> None:
    maker = Database(url, FakeClock(NOW))
    DatabaseRecords(maker).create(a_cluster(), [], {}, ASKED)
    answers: list[int] = []

    def change(number: int) -> None:
        database = Database(url, FakeClock(NOW))
        records = DatabaseRecords(database)
        for turn in range(5):
            answer = records.change("lab", raised, ASKED, nonce=f"{number}-{turn}")
            answers.append(answer["target"])
        database.close()

    threads = [threading.Thread(target=change, args=(number,)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    assert sorted(answers) == list(range(3, 33))
    assert DatabaseRecords(maker).load("lab").cluster.groups[0].target == 32
    maker.close()


def test_of_many_at_once_only_those_that_fit_are_written(url) -> None:
    def fits(before, after) -> None:
        assert len(after) == len(before) + 1
        if len(after) > 3:
            raise ValidationException("full")

    def create(number: int) -> None:
        database = Database(url, FakeClock(NOW))
        with contextlib.suppress(ValidationException):
            DatabaseRecords(database).create(
                a_cluster(f"c{number}"), [cluster_event(number)], {}, ASKED, fits=fits
            )
        database.close()

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()

    database = Database(url, FakeClock(NOW))
    assert len(DatabaseRecords(database).all()) == 3
    database.close()


def test_a_change_that_does_not_fit_changes_nothing(records) -> None:
    records.create(a_cluster(), [], {}, ASKED)
    records.create(a_cluster("other"), [], {}, ASKED)
    before = records.all()
    assert [one.cluster.name for one in before] == ["lab", "other"]

    def fits(now, then) -> None:
        counts = [sum(one.groups[0].target for one in clusters) for clusters in (now, then)]
        raise ValidationException(f"from {counts[0]} to {counts[1]}")

    with pytest.raises(ValidationException, match="from 4 to 5"):
        records.change("lab", raised, ASKED, fits=fits)

    assert [old is new for old, new in zip(before, records.all(), strict=True)] == [True, True]


def test_a_transaction_that_reads_sees_a_single_state(database, records) -> None:
    records.create(a_cluster(), [], {}, ASKED)
    requested = select(CLUSTERS.c.name)
    with database.reading() as connection:
        assert connection.execute(requested).scalars().all() == ["lab"]
        records.create(a_cluster("other"), [], {}, ASKED)
        assert connection.execute(requested).scalars().all() == ["lab"]

    assert records.names() == ["lab", "other"]


def test_tags_are_changed_as_a_whole(records) -> None:
    records.create(a_cluster(), [], {"a": "1"}, ASKED)

    assert records.tag("lab", lambda tags: {**tags, "b": ""}, ASKED) == {"a": "1", "b": ""}
    assert records.tag("lab", lambda tags: {}, ASKED) == {}
    assert records.tag("nowhere", lambda tags: {}, ASKED) is None


def test_the_oldest_events_of_a_cluster_are_forgotten(records) -> None:
    most = records_module.EVENTS_KEPT
    records.create(a_cluster(), [cluster_event(n) for n in range(most)], {}, ASKED)
    records.create(a_cluster("other"), [cluster_event(10**9)], {}, ASKED)
    held = records.load("lab")
    records.save(held, held.cluster, (), [cluster_event(most + 1), cluster_event(most + 2)])

    kept = records.cluster_events("lab")
    assert (len(kept), kept[0], kept[-1]) == (most, cluster_event(2), cluster_event(most + 2))
    assert records.cluster_events("other") == [cluster_event(10**9)]


def test_the_oldest_requests_are_forgotten(database, records) -> None:
    most = records_module.REQUESTS_KEPT
    row = {"at": "", "cluster": "lab", "person": "ada", "operation": "AddTags", "body": "{}"}
    with database.writing() as connection:
        connection.execute(insert(REQUESTS), [row] * most)
    records.create(a_cluster(), [], {}, ASKED)
    records.tag("lab", lambda tags: {}, ASKED)

    with database.reading() as connection:
        numbers = connection.execute(select(REQUESTS.c.number).order_by("number")).scalars().all()
    assert (numbers[0], numbers[-1], len(numbers)) == (3, most + 2, most)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE layout SET version = 2", "2"),
        ("UPDATE layout SET version = 99", "99"),
        ("DELETE FROM layout", "unknown"),
        ("DROP TABLE layout", "unknown"),
    ],
)
def test_tables_of_another_layout_are_refused_and_kept(url, change, found) -> None:
    with contextlib.closing(Database(url, FakeClock(NOW))) as database:
        DatabaseRecords(database).create(a_cluster(), [], {}, ASKED)
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text(change))

    with pytest.raises(
        BackendError, match=rf"schema version {found} is not supported, .* or another database"
    ):
        Database(url, FakeClock(NOW))

    with engine.connect() as connection:
        assert connection.execute(text("SELECT name FROM clusters")).scalars().all() == ["lab"]
    engine.dispose()


def test_a_damaged_file_is_reported_as_what_it_is(tmp_path) -> None:
    path = tmp_path / "clusters.db"
    path.write_bytes(b"no database at all" * 1000)

    with pytest.raises(BackendError, match=r"clusters.db is damaged .* restores the last"):
        Database(f"sqlite:///{path}", FakeClock(NOW))


def test_a_damaged_file_is_restored_when_its_owner_starts_again(tmp_path) -> None:
    path = tmp_path / "clusters.db"
    url = f"sqlite:///{path}"
    database = Database(url, FakeClock(NOW))
    DatabaseRecords(database).create(a_cluster(), [], {}, ASKED)
    database.close()
    assert recover_file(url) == ""
    path.write_bytes(b"no database at all" * 1000)

    assert "was restored" in recover_file(url)

    database = Database(url, FakeClock(NOW))
    assert DatabaseRecords(database).load("lab") is not None
    database.close()
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.attack
def test_a_cluster_is_in_the_backup_before_anybody_starts_again(tmp_path) -> None:
    path = tmp_path / "clusters.db"
    url = f"sqlite:///{path}"
    database = Database(url, FakeClock(NOW))
    database.back_up_changes()
    DatabaseRecords(database).create(a_cluster(), [], {}, ASKED)
    while (pause := database.back_up_changes()) != math.inf:
        time.sleep(pause)
    database.close()
    path.write_bytes(b"no database at all" * 1000)

    assert "was restored" in recover_file(url)

    database = Database(url, FakeClock(NOW))
    assert DatabaseRecords(database).load("lab") is not None
    database.close()


def test_a_body_that_is_damaged_is_reported(tmp_path) -> None:
    path = tmp_path / "clusters.db"
    database = Database(f"sqlite:///{path}", FakeClock(NOW))
    records = DatabaseRecords(database)
    records.create(a_cluster(), [], {}, ASKED)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE clusters SET body = '{', version = 7")
    other.close()

    with pytest.raises(BackendError, match="contains invalid data"):
        records.load("lab")
    database.close()


def test_a_full_disk_is_reported_and_what_was_written_before_stays(tmp_path) -> None:
    path = tmp_path / "clusters.db"
    database = Database(f"sqlite:///{path}", FakeClock(NOW))
    records = DatabaseRecords(database)
    records.create(a_cluster(), [], {}, ASKED)
    with database.reading() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    large = a_cluster("large", requested={"x": "y" * 100_000})

    with pytest.raises(StorageFull, match=r"no space left on device for .*clusters.db"):
        records.create(large, [], {}, ASKED)
    assert records.names() == ["lab"]
    database.close()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("nonsense", "Could not parse"),
        ("oracle://x", "oracle is not supported"),
        ("mysql://x/y", "mysql is not supported"),
        ("redis://x", "redis is not supported"),
        ("sqlite://", "has no file path"),
        ("sqlite:///:memory:", "has no file path"),
    ],
)
def test_a_url_that_is_none_is_reported(given, says) -> None:
    with pytest.raises(ConfigError, match=f"database: .*{says}.*; expected sqlite:////path"):
        Database(given, FakeClock(NOW))


def test_a_file_that_cannot_be_made_is_reported_with_what_to_do(tmp_path) -> None:
    with pytest.raises(BackendError, match=r"unable to open .*; its directory must exist"):
        Database(f"sqlite:///{tmp_path}/missing/clusters.db", FakeClock(NOW))


def test_a_server_that_is_away_is_reported_without_its_password() -> None:
    with pytest.raises(BackendError) as raised:
        Database("postgresql+psycopg://me:secret@127.0.0.1:1/x", FakeClock(NOW))

    assert "secret" not in str(raised.value)


def test_a_database_of_an_earlier_release_gets_the_tables_that_it_lacks(url) -> None:
    with contextlib.closing(Database(url, FakeClock(NOW))) as database:
        DatabaseRecords(database).create(a_cluster(), [], {}, ASKED)
        with database.writing() as connection:
            POLICIES.drop(connection)

    with contextlib.closing(Database(url, FakeClock(NOW))) as database:
        assert DatabasePolicies(database).all() == []
        assert DatabaseRecords(database).names() == ["lab"]


def a_policy(number: int = 1, **changes) -> Policy:
    values = {
        "id": f"{number:012d}",
        "name": f"quota-{number}",
        "cluster": "lab",
        "cluster_id": "0123456789ab",
        "created_at": NOW + timedelta(seconds=number),
        "created_by": "ada",
        "modified_at": NOW,
        "modified_by": "ada",
        "requested": {"ComputeQuotaTarget": {"TeamName": "red"}},
        "quota": ComputeQuota(team="red", amounts=(InstanceAmount(instance_type="a", cpus=0.5),)),
    }
    return Policy(**{**values, **changes})


def test_policies_are_stored_changed_and_deleted(database) -> None:
    policies = DatabasePolicies(database)
    seen = []
    for number in (2, 1):
        policies.create(a_policy(number), seen.append, ASKED)
    assert seen == [[], [a_policy(2)]]
    assert policies.all() == [a_policy(1), a_policy(2)]

    changed = policies.change("000000000001", lambda one: replace(one, version=2), ASKED)
    assert changed == a_policy(1, version=2)
    assert policies.change("000000000009", lambda one: one, ASKED) is None
    assert not policies.save(a_policy(1), None)
    assert policies.save(changed, replace(changed, failure="x"))
    assert policies.save(a_policy(2), None)
    assert policies.all() == [a_policy(1, version=2, failure="x")]
    with database.reading() as connection:
        assert len(connection.execute(select(REQUESTS.c.number)).all()) == 3


def test_nothing_of_a_policy_is_written_if_its_check_raises(database) -> None:
    policies = DatabasePolicies(database)

    def refuse(_):
        raise ValidationException("no")

    with pytest.raises(ValidationException):
        policies.create(a_policy(), refuse, ASKED)
    policies.create(a_policy(), lambda _: None, ASKED)
    with pytest.raises(ValidationException):
        policies.change(a_policy().id, refuse, ASKED)
    assert policies.all() == [a_policy()]
