"""``PolicyRecords`` in a database."""

import json
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, delete, insert, select, update

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.records import note_request
from holdfast.adapters.database.schema import POLICIES
from holdfast.kit.serial import from_plain, to_plain
from holdfast.model.team_queues import Policy
from holdfast.ports.cluster_records import RecordedRequest


class DatabasePolicies:
    """See ``PolicyRecords``."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def all(self) -> Sequence[Policy]:
        """See ``PolicyRecords.all``."""
        with self._database.reading() as connection:
            return _all(connection)

    def create(
        self,
        policy: Policy,
        check: Callable[[Sequence[Policy]], None],
        requested: RecordedRequest,
    ) -> None:
        """See ``PolicyRecords.create``."""
        with self._database.writing() as connection:
            check(_all(connection))
            connection.execute(insert(POLICIES).values(id=policy.id, body=_dump(policy)))
            note_request(connection, policy.cluster, requested)

    def change(
        self, policy_id: str, make: Callable[[Policy], Policy], requested: RecordedRequest
    ) -> Policy | None:
        """See ``PolicyRecords.change``."""
        with self._database.writing() as connection:
            found = _load(connection, policy_id)
            if found is None:
                return None
            changed = make(found)
            _write(connection, changed)
            note_request(connection, changed.cluster, requested)
        return changed

    def save(self, before: Policy, after: Policy | None) -> bool:
        """See ``PolicyRecords.save``."""
        with self._database.writing() as connection:
            if _load(connection, before.id) != before:
                return False
            if after is None:
                connection.execute(delete(POLICIES).where(POLICIES.c.id == before.id))
            else:
                _write(connection, after)
        return True


def _all(connection: Connection) -> list[Policy]:
    texts = connection.execute(select(POLICIES.c.body)).scalars()
    return sorted((_read(text) for text in texts), key=lambda one: (one.created_at, one.id))


def _load(connection: Connection, policy_id: str) -> Policy | None:
    requested = select(POLICIES.c.body).where(POLICIES.c.id == policy_id)
    text = connection.execute(requested).scalar_one_or_none()
    return None if text is None else _read(text)


def _write(connection: Connection, policy: Policy) -> None:
    changed = update(POLICIES).where(POLICIES.c.id == policy.id)
    connection.execute(changed.values(body=_dump(policy)))


def _dump(policy: Policy) -> str:
    return json.dumps(to_plain(policy))


def _read(text: str) -> Policy:
    return from_plain(Policy, json.loads(text))
