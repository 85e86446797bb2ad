"""Signs reports in tests without munged."""

import base64
import json
from collections.abc import Iterable
from datetime import UTC, datetime

from holdfast.adapters.slurm.nodes.signatures import Credential, CredentialsUnavailable, Trust

AGENT = 0
"""User of all agents."""


class FakeCredentials:
    """``Credentials`` of a cluster whose key this object is; other objects have another key."""

    def __init__(self, uid: int = AGENT, *, key: str = "key", at: datetime | None = None) -> None:
        self.uid = uid
        self.at = at
        self.key = key
        self.decoded = 0
        self.is_away = False

    def encode(self, payload: bytes) -> str:
        self._answer()
        at = (self.at or datetime.now(UTC)).isoformat()
        text = json.dumps([self.key, self.uid, at, payload.decode()])
        return base64.b64encode(text.encode()).decode()

    def decode(self, credential: str) -> Credential:
        self._answer()
        self.decoded += 1
        try:
            key, uid, at, payload = json.loads(base64.b64decode(credential))
        except (ValueError, TypeError) as error:
            raise ValueError("the signature is not valid here") from error
        if key != self.key:
            raise ValueError("the signature is not valid here: other key")
        return Credential(payload=payload.encode(), uid=uid, encoded_at=datetime.fromisoformat(at))

    def _answer(self) -> None:
        if self.is_away:
            raise CredentialsUnavailable("munge: Socket communication error")


def a_trust(credentials: FakeCredentials | None = None, users: Iterable[int] = (AGENT,)) -> Trust:
    return Trust(credentials=credentials or FakeCredentials(), users=frozenset(users))
