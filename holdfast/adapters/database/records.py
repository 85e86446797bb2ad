"""``ClusterRecords`` in a database."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Table, delete, insert, select, update

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.schema import (
    CLUSTERS,
    EVENTS,
    GROUPS,
    NODES,
    REQUESTS,
    TAGS,
    TOKENS,
    USED_WORDS,
)
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.clusters import ClusterEvent, DesiredCluster, DesiredGroup, Member
from holdfast.ports.cluster_records import Change, Fits, RecordedRequest, StoredCluster

T = TypeVar("T")

EVENTS_KEPT: Final = 10_000
"""Events kept for each cluster, the newest. A batch over 3,000 nodes creates about as many."""

REQUESTS_KEPT: Final = 100_000
"""Requests kept, of all clusters: seventy days of history at one change per minute."""


class DatabaseRecords:
    """See ``ClusterRecords``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[str, StoredCluster] = {}  # reading 10,000 nodes is slow

    def names(self) -> Sequence[str]:
        """See ``ClusterRecords.names``."""
        with self._database.reading() as connection:
            return list(connection.execute(select(CLUSTERS.c.name).order_by("name")).scalars())

    def all(self) -> Sequence[StoredCluster]:
        """See ``ClusterRecords.all``."""
        with self._database.reading() as connection:
            return self._others(connection, "")

    def load(self, name: str) -> StoredCluster | None:
        """See ``ClusterRecords.load``."""
        with self._database.reading() as connection:
            requested = select(CLUSTERS.c.version).where(CLUSTERS.c.name == name)
            return self._stored(
                connection, name, connection.execute(requested).scalar_one_or_none()
            )

    def _others(self, connection: Connection, name: str) -> Sequence[StoredCluster]:
        """All clusters but one; unchanged ones come from the cache."""
        requested = select(CLUSTERS.c.name, CLUSTERS.c.version).where(CLUSTERS.c.name != name)
        rows = connection.execute(requested.order_by("name")).all()
        found = [self._stored(connection, other, version) for other, version in rows]
        return [one for one in found if one is not None]

    def _stored(
        self, connection: Connection, name: str, version: int | None
    ) -> StoredCluster | None:
        known = self._known.get(name)
        if known is not None and known.version == version:
            return known
        stored = _load(connection, name)
        if stored is None:
            self._known.pop(name, None)
        else:
            self._known[name] = stored
        return stored

    def _fit(
        self,
        connection: Connection,
        fits: Fits | None,
        after: DesiredCluster,
        before: Sequence[DesiredCluster] = (),
    ) -> None:
        if fits is not None:
            others = [one.cluster for one in self._others(connection, after.name)]
            fits([*others, *before], [*others, after])

    def create(
        self,
        cluster: DesiredCluster,
        cluster_events: Sequence[ClusterEvent],
        tags: Mapping[str, str],
        requested: RecordedRequest,
        *,
        fits: Fits | None = None,
    ) -> bool:
        """See ``ClusterRecords.create``."""
        with self._database.writing() as connection:
            if _load(connection, cluster.name, lock=True) is not None:
                return False
            self._fit(connection, fits, cluster)
            row = {
                "name": cluster.name,
                # larger than any earlier one
                "version": round(cluster.created_at.timestamp() * 1e6),
                "body": _dump(replace(cluster, groups=())),
            }
            connection.execute(insert(CLUSTERS).values(row))
            _write_groups(connection, cluster)
            _write_events(connection, cluster.name, cluster_events)
            _write_tags(connection, cluster.name, tags)
            note_request(connection, cluster.name, requested)
        return True

    def change(
        self,
        name: str,
        make: Callable[[StoredCluster], Change],
        requested: RecordedRequest,
        *,
        fits: Fits | None = None,
        nonce: str = "",
        nonce_since: datetime | None = None,
    ) -> Mapping[str, object] | None:
        """See ``ClusterRecords.change``."""
        with self._database.writing() as connection:
            stored = _load(connection, name, lock=True)
            if stored is None:
                return None
            if nonce_since is not None:
                old = TOKENS.c.at < to_plain(nonce_since)
                connection.execute(delete(TOKENS).where(old))
            if nonce:
                previous = select(TOKENS.c.answer).where(
                    TOKENS.c.cluster == name, TOKENS.c.token == nonce
                )
                answer = connection.execute(previous).scalar_one_or_none()
                if answer is not None:
                    return _mapping(answer)
            change = make(stored)
            self._fit(connection, fits, change.cluster, [stored.cluster])
            _write(connection, stored, change.cluster, change.members, change.cluster_events)
            note_request(connection, name, requested)
            answer = json.dumps(to_plain(change.answer))
            if nonce:
                row = {
                    "cluster": name,
                    "token": nonce,
                    "at": to_plain(requested.at),
                    "answer": answer,
                }
                connection.execute(insert(TOKENS).values(row))
        return _mapping(answer)

    def save(
        self,
        stored: StoredCluster,
        cluster: DesiredCluster | None,
        members: Sequence[Member],
        cluster_events: Sequence[ClusterEvent],
    ) -> bool:
        """See ``ClusterRecords.save``."""
        name = stored.cluster.name
        with self._database.writing() as connection:
            requested = select(CLUSTERS.c.version).where(CLUSTERS.c.name == name).with_for_update()
            if connection.execute(requested).scalar_one_or_none() != stored.version:
                return False
            if cluster is None:
                connection.execute(delete(CLUSTERS).where(CLUSTERS.c.name == name))
            else:
                _write(connection, stored, cluster, members, cluster_events)
        return True

    def use_nonce(self, nonce: str, at: datetime, since: datetime) -> bool:
        """See ``ClusterRecords.use_nonce``."""
        with self._database.writing() as connection:
            old = USED_WORDS.c.at < to_plain(since)
            connection.execute(delete(USED_WORDS).where(old))
            requested = select(USED_WORDS.c.word).where(USED_WORDS.c.word == nonce)
            if connection.execute(requested).scalar_one_or_none() is not None:
                return False
            connection.execute(insert(USED_WORDS).values(word=nonce, at=to_plain(at)))
        return True

    def release_nonce(self, nonce: str) -> None:
        """See ``ClusterRecords.release_nonce``."""
        with self._database.writing() as connection:
            connection.execute(delete(USED_WORDS).where(USED_WORDS.c.word == nonce))

    def cluster_events(self, name: str) -> Sequence[ClusterEvent]:
        """See ``ClusterRecords.cluster_events``."""
        requested = select(EVENTS.c.body).where(EVENTS.c.cluster == name).order_by(EVENTS.c.number)
        with self._database.reading() as connection:
            return [_read(ClusterEvent, text) for text in connection.execute(requested).scalars()]

    def tags(self, name: str) -> Mapping[str, str]:
        """See ``ClusterRecords.tags``."""
        with self._database.reading() as connection:
            return _tags(connection, name)

    def tag(
        self,
        name: str,
        make: Callable[[Mapping[str, str]], Mapping[str, str]],
        requested: RecordedRequest,
    ) -> Mapping[str, str] | None:
        """See ``ClusterRecords.tag``."""
        with self._database.writing() as connection:
            if _load(connection, name, lock=True) is None:
                return None
            tags = make(_tags(connection, name))
            connection.execute(delete(TAGS).where(TAGS.c.cluster == name))
            _write_tags(connection, name, tags)
            note_request(connection, name, requested)
        return dict(sorted(tags.items()))


def _load(connection: Connection, name: str, *, lock: bool = False) -> StoredCluster | None:
    requested = select(CLUSTERS.c.version, CLUSTERS.c.body).where(CLUSTERS.c.name == name)
    row = connection.execute(requested.with_for_update() if lock else requested).one_or_none()
    if row is None:
        return None
    version, body = row
    groups = _bodies(connection, GROUPS, name, "position")
    members = _bodies(connection, NODES, name, "logical_id")
    cluster = replace(
        _read(DesiredCluster, body), groups=tuple(_read(DesiredGroup, text) for text in groups)
    )
    found = tuple(_read(Member, text) for text in members)
    in_order = sorted(found, key=lambda one: (one.group, one.added_at, one.logical_id))
    return StoredCluster(cluster=cluster, members=tuple(in_order), version=version)


def _bodies(connection: Connection, table: Table, name: str, order: str) -> Sequence[str]:
    requested = select(table.c.body).where(table.c.cluster == name).order_by(table.c[order])
    return connection.execute(requested).scalars().all()


def _write(
    connection: Connection,
    stored: StoredCluster,
    cluster: DesiredCluster,
    members: Sequence[Member],
    cluster_events: Sequence[ClusterEvent],
) -> None:
    row = {"version": stored.version + 1, "body": _dump(replace(cluster, groups=()))}
    connection.execute(update(CLUSTERS).where(CLUSTERS.c.name == cluster.name).values(row))
    if cluster.groups != stored.cluster.groups:
        connection.execute(delete(GROUPS).where(GROUPS.c.cluster == cluster.name))
        _write_groups(connection, cluster)
    before = {one.logical_id: one for one in stored.members}
    changed = [one for one in members if before.get(one.logical_id) != one]
    removed = before.keys() - {one.logical_id for one in members}
    stale = [*removed, *(one.logical_id for one in changed)]
    for name in stale:
        of = (NODES.c.cluster == cluster.name, NODES.c.logical_id == name)
        connection.execute(delete(NODES).where(*of))
    rows = [_node(cluster.name, one) for one in changed]
    if rows:
        connection.execute(insert(NODES), rows)
    _write_events(connection, cluster.name, cluster_events)


def _node(cluster: str, member: Member) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "logical_id": member.logical_id,
        "instance_group": member.group,
        "instance_id": member.machine.id if member.machine is not None else "",
        "status": member.status,
        "body": _dump(member),
    }


def _write_groups(connection: Connection, cluster: DesiredCluster) -> None:
    rows = [
        {"cluster": cluster.name, "name": one.name, "position": number, "body": _dump(one)}
        for number, one in enumerate(cluster.groups)
    ]
    if rows:
        connection.execute(insert(GROUPS), rows)


def _write_events(
    connection: Connection, cluster: str, cluster_events: Sequence[ClusterEvent]
) -> None:
    ids = [one.id for one in cluster_events]
    known = set(connection.execute(select(EVENTS.c.id).where(EVENTS.c.id.in_(ids))).scalars())
    rows = [
        {"cluster": cluster, "id": one.id, "body": _dump(one)}
        for one in cluster_events
        if one.id not in known
    ]
    if not rows:
        return
    connection.execute(insert(EVENTS), rows)
    numbers = select(EVENTS.c.number).where(EVENTS.c.cluster == cluster)
    last = connection.execute(numbers.order_by(EVENTS.c.number.desc()).offset(EVENTS_KEPT).limit(1))
    oldest = last.scalar_one_or_none()
    if oldest is not None:
        old = (EVENTS.c.cluster == cluster, EVENTS.c.number <= oldest)
        connection.execute(delete(EVENTS).where(*old))


def _tags(connection: Connection, name: str) -> dict[str, str]:
    requested = select(TAGS.c.key, TAGS.c.value).where(TAGS.c.cluster == name).order_by(TAGS.c.key)
    return {row.key: row.value for row in connection.execute(requested)}


def _write_tags(connection: Connection, cluster: str, tags: Mapping[str, str]) -> None:
    rows = [{"cluster": cluster, "key": key, "value": value} for key, value in tags.items()]
    if rows:
        connection.execute(insert(TAGS), rows)


def note_request(connection: Connection, cluster: str, requested: RecordedRequest) -> None:
    """Store a requested change of a cluster, and delete the oldest ones."""
    row = {
        "at": to_plain(requested.at),
        "cluster": cluster,
        "person": requested.person,
        "operation": requested.operation,
        "body": json.dumps(to_plain(requested.request)),
    }
    written = insert(REQUESTS).values(row).returning(REQUESTS.c.number)
    number = connection.execute(written).scalar_one()
    old = REQUESTS.c.number <= number - REQUESTS_KEPT
    connection.execute(delete(REQUESTS).where(old))


def _dump(value: object) -> str:
    return json.dumps(to_plain(value))


def _read(kind: type[T], text: str) -> T:
    return from_plain(kind, json.loads(text))


def _mapping(text: str) -> dict[str, object]:
    found: dict[str, object] = json.loads(text)
    return found
