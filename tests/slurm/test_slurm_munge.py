"""Credentials of a real munged, and of the fake that other tests use: the same contract."""

import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from signing import FakeCredentials

from holdfast.adapters.slurm.nodes.munge import Munge, trust_of
from holdfast.adapters.slurm.nodes.signatures import Credentials, CredentialsUnavailable
from tests.engines.host_tools import require_tool
from tests.engines.slurm_cluster import SlurmPrograms, running_munged


@pytest.fixture(scope="module")
def socket(programs: SlurmPrograms) -> Iterator[str]:
    with running_munged(programs) as socket:
        yield str(socket)


@pytest.fixture(params=["munge", "fake"])
def credentials(request: pytest.FixtureRequest) -> Credentials:
    if request.param == "fake":
        return FakeCredentials(os.getuid())
    return Munge(request.getfixturevalue("socket"))


@pytest.mark.parametrize("payload", [b"", b"x", b"holdfast-report:" + b"0" * 64])
def test_a_credential_reports_payload_user_and_time_however_often_it_is_decoded(
    credentials: Credentials, payload: bytes
) -> None:
    text = credentials.encode(payload)

    assert "\n" not in text
    for _ in range(2):  # munged notes each that it has decoded
        found = credentials.decode(text)
        assert (found.payload, found.uid) == (payload, os.getuid())
        assert abs(found.encoded_at - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[:40],
        lambda text: text.swapcase(),
        lambda _: "",
        lambda _: "MUNGE:AAAA:",
        lambda _: "é" * 99,
    ],
)
def test_what_is_no_credential_is_refused(credentials: Credentials, change) -> None:
    with pytest.raises(ValueError, match="not valid here"):
        credentials.decode(change(credentials.encode(b"payload")))


def test_a_munged_that_is_not_there_is_kept_apart_from_a_bad_credential(tmp_path: Path) -> None:
    require_tool("munge")
    munge = Munge(str(tmp_path / "none"))
    with pytest.raises(CredentialsUnavailable):
        munge.encode(b"")


def test_a_credential_of_an_ordinary_user_names_that_user(socket: str) -> None:
    done = subprocess.run(
        ["munge", f"--socket={socket}", "--string=holdfast-report:x"],
        user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert Munge(socket).decode(done.stdout.strip()).uid == 65534


def test_socket_and_user_are_those_of_slurm_conf(socket: str, tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text(
        f"SlurmUser=4711\nAuthInfo=cred_expire=30,socket={socket} # munge\n", encoding="utf-8"
    )

    trust = trust_of(conf)

    assert trust.users == {0, os.geteuid(), 4711}
    assert trust.credentials.decode(trust.credentials.encode(b"x")).payload == b"x"
