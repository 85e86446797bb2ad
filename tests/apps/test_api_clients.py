"""Many clients at once, a server that is killed, and a disk that is full: nothing accepted is lost.

The server here has the protocol, the database and the connections of ``holdfast api``, and nobody
who brings clusters about: what was accepted is all that counts.
"""

import contextlib
import http.client
import json
import resource
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from conformance_lab import a_group
from served_api import Served, Wire, with_keys

from holdfast.adapters.database.connection import Database
from holdfast.adapters.database.records import DatabaseRecords
from holdfast.apps.clock import SystemClock
from holdfast.model.clusters import DesiredCluster, DesiredGroup, MachineGroup
from holdfast.model.sagemaker import ClusterStatus
from holdfast.ports.cluster_records import RecordedRequest

CLIENTS = 200
CLUSTERS = 20
KILLS = 2
SHARED = "shared"
TIMEOUT_S = 120.0
NOW = datetime(2026, 1, 1, tzinfo=UTC)
SERVER = Path(__file__).with_name("quiet_api.py")


class Place:
    """Where the server is now."""

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'api.db'}"
        self.config = with_keys(folder / "api.toml")
        self.log = folder / "api.log"
        self.served: Served | None = None
        self.is_over = threading.Event()
        with self.records() as records:
            group = MachineGroup(cluster=SHARED, name="gpu", instance_type="ml.g5.xlarge")
            records.create(
                DesiredCluster(
                    name=SHARED,
                    uid="0123456789ab",
                    created_at=NOW,
                    status=ClusterStatus.IN_SERVICE,
                    since=NOW,
                    is_continuous=True,
                    groups=(DesiredGroup(made_of=group, target=0),),
                ),
                (),
                {},
                RecordedRequest(at=NOW, person="nobody", operation="CreateCluster", request={}),
            )

    @contextlib.contextmanager
    def records(self) -> Iterator[DatabaseRecords]:
        with closing(Database(self.url, SystemClock())) as database:
            yield DatabaseRecords(database)

    def begin(self, largest_file: int = resource.RLIM_INFINITY) -> Served:
        """Serve; no file may become larger than so many bytes."""
        argv = [sys.executable, str(SERVER), self.url, str(self.config), str(largest_file)]
        with self.log.open("a", encoding="utf-8") as log:
            process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        port = int(process.stdout.readline())
        self.served = Served(f"http://127.0.0.1:{port}", self.config, process, self.log)
        return self.served

    def kill(self) -> None:
        """End the server at once, by SIGKILL."""
        self.served.process.kill()
        self.served.process.communicate()

    def noted(self, operation: str) -> Counter[str]:
        """How often each wish was taken, by the words of it that nobody else has."""
        with closing(Database(self.url, SystemClock())) as database, database.reading() as found:
            rows = found.exec_driver_sql(
                "SELECT body FROM requests WHERE operation = ?", (operation,)
            )
            bodies = [json.loads(body) for (body,) in rows]
        return Counter(one.get("ClientToken") or one["ClusterName"] for one in bodies if one)


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.is_over.set()
    if place.served is not None:
        place.kill()


def reported(place: Place, operation: str, request: dict[str, Any]) -> str:
    """Ask until there is an answer that is one; its error code, or nothing."""
    body = json.dumps(request).encode()
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline and not place.is_over.is_set():
        try:
            with closing(Wire(place.served)) as wire:
                reply = wire.call(operation, body)
        except (OSError, http.client.HTTPException):  # it was killed
            time.sleep(0.25)
            continue
        if reply.status < 500 and reply.code != "ThrottlingException":
            return reply.code  # else it is to come again, as clients of AWS do by themselves
        time.sleep(0.2)
    raise AssertionError(f"no answer to {operation}")


def test_of_two_hundred_clients_each_gets_what_was_accepted_once_wherever_the_server_is_killed(
    place,
) -> None:
    place.begin()
    done: list[int] = []

    def live(number: int) -> tuple[str, str]:
        create = {"ClusterName": f"c-{number % CLUSTERS}", "InstanceGroups": [a_group(0)]}
        one = {"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}
        add = {"ClusterName": SHARED, "ClientToken": f"token-{number}", "NodesToAdd": [one]}
        try:
            return reported(place, "CreateCluster", create), reported(
                place, "BatchAddClusterNodes", add
            )
        finally:
            done.append(number)

    with ThreadPoolExecutor(CLIENTS) as pool:
        lives = [pool.submit(live, number) for number in range(CLIENTS)]
        for kill in range(1, KILLS + 1):
            while len(done) < kill * CLIENTS // (KILLS + 1):
                time.sleep(0.01)
            place.kill()
            place.begin()
        codes = [one.result() for one in lives]

    names = [f"c-{number}" for number in range(CLUSTERS)]
    tokens = [f"token-{number}" for number in range(CLIENTS)]
    assert {created for created, _ in codes} == {"", "ResourceInUse"}
    assert {added for _, added in codes} == {""}
    with place.records() as records:
        assert set(records.names()) == {SHARED, *names}
        [group] = records.load(SHARED).cluster.groups
    assert group.target == CLIENTS
    assert place.noted("CreateCluster") == Counter(names)
    assert place.noted("BatchAddClusterNodes") == Counter(tokens)
    assert "Traceback" not in place.log.read_text(encoding="utf-8")


def test_where_the_disk_is_full_what_was_accepted_is_there_and_what_was_refused_is_not(
    place,
) -> None:
    served = place.begin(largest_file=400_000)
    accepted, refused = set(), set()
    with closing(Wire(served)) as wire:
        for number in range(400):
            name = f"c-{number}"
            body = json.dumps({"ClusterName": name, "InstanceGroups": [a_group(0)]}).encode()
            reply = wire.call("CreateCluster", body)
            if reply.status == 200:
                accepted.add(name)
            else:
                assert (reply.status, reply.code) == (503, "ServiceUnavailable")
                refused.add(name)
            if len(refused) > 5:
                break
        listed = wire.call("ListClusters", b"{}")
    place.kill()

    assert listed.status == 200
    assert accepted
    assert refused
    place.begin()
    again = min(refused)
    assert (
        reported(place, "CreateCluster", {"ClusterName": again, "InstanceGroups": [a_group(0)]})
        == ""
    )
    with place.records() as records:
        assert set(records.names()) == {SHARED, *accepted, again}
    assert place.noted("CreateCluster") == Counter([*accepted, again])
    assert "Traceback" not in place.log.read_text(encoding="utf-8")
