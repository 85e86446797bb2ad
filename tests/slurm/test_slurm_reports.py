import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from signing import FakeCredentials, a_trust

from holdfast.adapters.slurm.nodes.agent_settings import AgentSlurm
from holdfast.adapters.slurm.nodes.report import SharedReport, machine_id, open_reporter
from holdfast.adapters.slurm.nodes.reports import Reports
from holdfast.adapters.slurm.nodes.signatures import SIGN_EVERY, VALID_FOR, signed
from holdfast.kit.serial import to_plain
from holdfast.model.errors import BackendError, ConfigError
from holdfast.model.hardware import Device, DeviceGroup, DeviceKind
from holdfast.model.report import NodeReport
from tests.ports.builders import NOW, a_fault

REPORT = NodeReport(
    node="n1", boot_id="b1", sequence=1, reported_at=NOW, faults=(a_fault(),)
)  # fmt: skip
LATER = timedelta(seconds=10)


def until(is_done: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not is_done():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def reporter(folder: Path, said: list[str] | None = None, **changes) -> SharedReport:
    values = {"machine": "m1", "timeout_s": 60.0, "credentials": FakeCredentials(), **changes}
    settings = AgentSlurm(report_dir=folder, heartbeat=timedelta(milliseconds=20))
    return SharedReport(
        settings, "n1", report_problem=[].append if said is None else said.append, **values
    )


def looked(folder: Path, now: datetime | None = None) -> Reports:
    reports = Reports(folder, a_trust())
    reports.refresh(now or datetime.now(UTC))
    return reports


def test_what_an_agent_says_is_what_the_controller_hears(tmp_path: Path) -> None:
    one = reporter(tmp_path)

    one.changed(None, REPORT)
    until((tmp_path / "n1.json").exists)
    one.close()

    received = looked(tmp_path).received()["n1"]
    assert (received.report, received.machine) == (REPORT, "m1")


def test_the_newest_report_takes_the_place_of_the_last(tmp_path: Path) -> None:
    one = reporter(tmp_path)
    for number in range(1, 30):
        one.changed(None, replace(REPORT, sequence=number))

    until(lambda: looked(tmp_path).received().get("n1") is not None
          and looked(tmp_path).received()["n1"].report.sequence == 29)  # fmt: skip
    one.close()
    assert [path.name for path in tmp_path.iterdir()] == ["n1.json"]


def test_an_agent_shows_that_it_lives(tmp_path: Path) -> None:
    one = reporter(tmp_path)
    one.changed(None, REPORT)
    until((tmp_path / "n1.json").exists)
    before = (tmp_path / "n1.json").stat().st_mtime_ns

    until(lambda: (tmp_path / "n1.json").stat().st_mtime_ns > before)
    one.close()


def test_an_agent_whose_loop_hangs_shows_no_life(tmp_path: Path) -> None:
    one = reporter(tmp_path, timeout_s=0.0)
    one.changed(None, REPORT)
    until((tmp_path / "n1.json").exists)
    before = (tmp_path / "n1.json").stat().st_mtime_ns

    threading.Event().wait(0.2)

    assert (tmp_path / "n1.json").stat().st_mtime_ns == before
    one.close()


def test_a_file_that_is_removed_is_written_again(tmp_path: Path) -> None:
    one = reporter(tmp_path, said := [])
    one.changed(None, REPORT)
    until((tmp_path / "n1.json").exists)

    (tmp_path / "n1.json").unlink()

    until((tmp_path / "n1.json").exists)
    one.close()
    assert said[0].endswith("retrying")


def test_a_file_that_is_damaged_is_written_again(tmp_path: Path) -> None:
    one = reporter(tmp_path)
    one.changed(None, REPORT)
    until((tmp_path / "n1.json").exists)

    (tmp_path / "n1.json").write_bytes(b"damaged")

    until(lambda: looked(tmp_path).received().get("n1") is not None)
    one.close()


def test_a_directory_that_is_away_is_reported_once_and_waited_for(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    one = reporter(shared, said := [])
    one.changed(None, REPORT)
    until(lambda: said)

    shared.mkdir()

    until((shared / "n1.json").exists)
    until(lambda: len(said) == 2)
    one.close()
    assert "cannot report to" in said[0]
    assert "again" in said[1]


def test_a_reporter_needs_its_directory_and_a_name_that_can_be_a_file(tmp_path: Path) -> None:
    settings = AgentSlurm(report_dir=tmp_path / "none")
    with pytest.raises(ConfigError, match="is not a directory; create it on the file"):
        open_reporter(settings, "n1", root=tmp_path, timeout_s=1, report_problem=print)
    for name in ("../n1", ".n1"):
        with pytest.raises(ConfigError, match="is not a valid name"):
            open_reporter(
                AgentSlurm(report_dir=tmp_path),
                name,
                root=tmp_path,
                timeout_s=1,
                report_problem=print,
            )


def test_a_machine_is_named_by_its_instance_else_by_its_board_else_by_its_disk(
    tmp_path: Path,
) -> None:
    dmi = tmp_path / "sys/devices/virtual/dmi/id"
    for folder in (dmi, tmp_path / "etc", tmp_path / "sys/class/dmi"):
        folder.mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id").symlink_to("../../devices/virtual/dmi/id")
    assert machine_id(tmp_path) == ""
    (tmp_path / "etc/machine-id").write_text("disk\n")
    assert machine_id(tmp_path) == "disk"
    (dmi / "product_uuid").write_text("board\n")
    (dmi / "board_asset_tag").write_text("Not Specified\n")
    assert machine_id(tmp_path) == "board"
    (dmi / "board_asset_tag").write_text("i-0123456789abcdef0\n")
    assert machine_id(tmp_path) == "i-0123456789abcdef0"


# The controller's side


def put(
    folder: Path,
    *,
    machine: object = "m1",
    report: NodeReport = REPORT,
    credentials: FakeCredentials | None = None,
) -> Path:
    path = folder / f"{report.node}.json"
    content = json.dumps({"machine": machine, "report": to_plain(report)})
    path.write_text(signed(content, credentials or FakeCredentials()), encoding="utf-8")
    return path


def sign_again(path: Path, change: Callable[[str], str]) -> None:
    """Change a report, and sign it as its agent would."""
    content = change(path.read_text(encoding="utf-8").partition("\n")[0])
    path.write_text(signed(content, FakeCredentials()), encoding="utf-8")


def test_only_news_is_news(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    reports = Reports(tmp_path, a_trust())
    assert not reports.refresh(now)
    path = put(tmp_path)
    assert reports.refresh(now)
    assert not reports.refresh(now)
    os.utime(path)
    assert not reports.refresh(now)
    put(tmp_path, report=replace(REPORT, sequence=2))
    assert reports.refresh(now)
    path.unlink()
    assert reports.refresh(now)
    assert reports.received() == {}


def test_every_sign_of_life_is_heard_when_it_is_seen(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    path = put(tmp_path)
    reports = looked(tmp_path, now)

    os.utime(path, (1, 1))  # whatever the clock of the server says
    reports.refresh(now + LATER)
    assert reports.received()["n1"].at == now + LATER

    reports.refresh(now + 2 * LATER)
    assert reports.received()["n1"].at == now + LATER


def test_a_heartbeat_that_is_noticed_late_is_as_old_as_its_file(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    path = put(tmp_path)
    reports = looked(tmp_path, now)

    written_at = now + timedelta(seconds=1)
    os.utime(path, (written_at.timestamp(), written_at.timestamp()))
    reports.refresh(now + timedelta(seconds=20))  # over NFS, which caches the time of the file
    received = reports.received()["n1"]
    assert received.at == now + timedelta(seconds=20)
    assert received.written_at is not None
    assert abs(received.written_at - written_at) < timedelta(milliseconds=1)

    os.utime(path, (1, 1))  # a server whose clock is wrong
    reports.refresh(now + timedelta(seconds=30))
    assert reports.received()["n1"].written_at == now + timedelta(seconds=30)


@pytest.mark.parametrize(("age_s", "has_heartbeat"), [(30, True), (3600, False), (-3600, False)])
def test_an_old_file_is_no_sign_of_life(tmp_path: Path, age_s: int, has_heartbeat: bool) -> None:
    now = datetime.now(UTC)
    path = put(tmp_path)
    os.utime(path, (now.timestamp() - age_s, now.timestamp() - age_s))

    assert (looked(tmp_path, now).received()["n1"].at is not None) == has_heartbeat


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"machine": "m"}', '{"machine": 1, "report": {}}', "[" * 100_000]
)
def test_what_is_no_report_is_reported_and_not_heard(tmp_path: Path, content: str) -> None:
    path = tmp_path / "n1.json"
    path.write_text(signed(content, FakeCredentials()), encoding="utf-8")

    reports = looked(tmp_path)

    assert reports.received() == {}
    assert reports.skipped()["n1"].startswith(f"{tmp_path}/n1.json: ")


def fill_with_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_elsewhere(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.attack
@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (fill_with_fifo, "is a FIFO, expected a regular file"),
        (link_elsewhere, "is a symbolic link"),
        (lambda path: path.write_bytes(b"x" * 5_000_000), "larger than"),
        (lambda path: sign_again(path, lambda _: "[" * 100_000), "nested deeper"),
        (lambda path: sign_again(path, lambda one: one.replace("+00:00", "")), "has no zone"),
        (lambda path: sign_again(path, lambda one: one.replace("2026-", "9999-")), "2000 to 2199"),
    ],
)
def test_a_bad_file_is_skipped_by_name_and_the_last_valid_report_holds(
    tmp_path: Path, spoil: Callable[[Path], object], why: str
) -> None:
    now = datetime.now(UTC)
    path = put(tmp_path)
    put(tmp_path, report=replace(REPORT, node="n2"))
    reports = looked(tmp_path, now)
    before = reports.received()["n1"]

    spoil(path)
    reports.refresh(now + LATER)
    reports.refresh(now + 2 * LATER)

    assert why in reports.skipped()["n1"]
    assert str(path) in reports.skipped()["n1"]
    assert reports.received()["n1"] == before, "and its heartbeat ages"
    assert reports.received()["n2"].report.node == "n2"

    path.unlink()
    put(tmp_path)
    reports.refresh(now + 3 * LATER)
    assert reports.skipped() == {}
    assert reports.received()["n1"].at == now + 3 * LATER


def test_no_node_speaks_for_another_nor_with_a_name_that_means_two(tmp_path: Path) -> None:
    put(tmp_path).rename(tmp_path / "n2.json")
    assert looked(tmp_path).skipped().keys() == {"n2"}
    put(tmp_path, machine="m1#b1")
    assert looked(tmp_path).skipped().keys() == {"n1", "n2"}


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".n1.json.77").write_text("half", encoding="utf-8")
    (tmp_path / ".x.json").write_text("half", encoding="utf-8")

    reports = looked(tmp_path)

    assert reports.received() == {}
    assert reports.skipped() == {}


def test_what_was_heard_holds_while_the_directory_is_away(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    put(shared)
    reports = looked(shared)
    shared.rename(tmp_path / "elsewhere")

    with pytest.raises(BackendError, match="cannot read"):
        reports.refresh(datetime.now(UTC))

    assert list(reports.received()) == ["n1"]


# Who may speak


@pytest.mark.attack
@pytest.mark.parametrize(
    ("credentials", "why"),
    [
        (FakeCredentials(65534), "signed by user 65534, expected one of 0"),
        (FakeCredentials(key="another"), "the signature is not valid here"),
        (
            FakeCredentials(at=datetime.now(UTC) - VALID_FOR - LATER),
            "ago, more than 15m: the agent",
        ),
        (FakeCredentials(at=datetime.now(UTC) + timedelta(hours=3)), "in the future: clocks"),
    ],
)
def test_a_report_counts_only_with_a_current_signature_of_an_agent(
    tmp_path: Path, credentials: FakeCredentials, why: str
) -> None:
    put(tmp_path, credentials=credentials)

    reports = looked(tmp_path)

    assert reports.received() == {}
    assert why in reports.skipped()["n1"]


def test_a_report_without_a_signature_or_with_that_of_another_does_not_count(
    tmp_path: Path,
) -> None:
    path = put(tmp_path)
    content, credential = path.read_text(encoding="utf-8").splitlines()
    path.write_text(content, encoding="utf-8")
    assert "not signed" in looked(tmp_path).skipped()["n1"]

    path.write_text(f"{content.replace('m1', 'm2')}\n{credential}\n", encoding="utf-8")
    assert "does not match the content" in looked(tmp_path).skipped()["n1"]


@pytest.mark.attack
def test_an_older_report_that_is_put_back_does_not_count(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    path = put(tmp_path, credentials=FakeCredentials(at=now - LATER))
    old = path.read_text(encoding="utf-8")
    reports = looked(tmp_path, now)
    put(tmp_path, report=replace(REPORT, faults=()), credentials=FakeCredentials(at=now))
    reports.refresh(now)

    for _ in range(2):
        path.write_text(old, encoding="utf-8")
        reports.refresh(now)
        assert "report ignored (replay or restored file)" in reports.skipped()["n1"]
        assert reports.received()["n1"].report.faults == ()
        fill_with_fifo(path)
        reports.refresh(now)
        path.unlink()


@pytest.mark.attack
def test_an_older_report_that_is_put_back_after_its_file_was_missing_does_not_count(
    tmp_path: Path,
) -> None:
    now = datetime.now(UTC)
    path = put(tmp_path, credentials=FakeCredentials(at=now - LATER))
    old = path.read_text(encoding="utf-8")
    reports = looked(tmp_path, now)
    put(tmp_path, report=replace(REPORT, faults=()), credentials=FakeCredentials(at=now))
    reports.refresh(now)

    path.unlink()
    reports.refresh(now)
    assert reports.received() == {}
    path.write_text(old, encoding="utf-8")
    reports.refresh(now)

    assert "older than the last accepted report" in reports.skipped()["n1"]
    assert reports.received() == {}
    put(tmp_path, credentials=FakeCredentials(at=now + LATER))
    reports.refresh(now + LATER)
    assert reports.received()["n1"].report == REPORT


def test_a_signature_is_verified_once_and_heartbeats_count_while_it_is_current(
    tmp_path: Path,
) -> None:
    now, credentials = datetime.now(UTC), FakeCredentials()
    path = put(tmp_path, credentials=FakeCredentials(at=now))
    reports = Reports(tmp_path, a_trust(credentials))
    for number in range(1, 100):
        os.utime(path, (number, number))
        reports.refresh(now + number * LATER)

    assert credentials.decoded == 1
    assert reports.received()["n1"].at == now + VALID_FOR
    put(tmp_path, credentials=FakeCredentials(at=now + 100 * LATER))
    assert not reports.refresh(now + 100 * LATER), "the same content is no news"
    assert reports.received()["n1"].at == now + 100 * LATER


def test_while_munge_is_away_earlier_reports_hold_and_heartbeats_count(tmp_path: Path) -> None:
    now, credentials = datetime.now(UTC), FakeCredentials()
    first, second = put(tmp_path), put(tmp_path, report=replace(REPORT, node="n2"))
    reports = Reports(tmp_path, a_trust(credentials))
    reports.refresh(now)
    credentials.is_away = True
    put(tmp_path, report=replace(REPORT, faults=()))
    os.utime(second)

    with pytest.raises(BackendError, match="cannot verify reports"):
        reports.refresh(now + LATER)

    assert reports.received()["n1"].report == REPORT
    assert reports.received()["n2"].at == now + LATER
    credentials.is_away = False
    assert reports.refresh(now + 2 * LATER)
    assert reports.received()["n1"].report.faults == ()
    assert first.exists()


@pytest.mark.attack
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775, 0o757])
def test_nothing_is_read_from_a_directory_that_others_may_change(tmp_path: Path, mode: int) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    put(shared)
    shared.chmod(mode)

    with pytest.raises(BackendError, match=f"mode {mode:04o} lets other users change reports"):
        looked(shared)

    shared.chmod(0o755)
    os.chown(shared, 65534, -1)
    with pytest.raises(BackendError, match="its owner, user 65534, can change reports"):
        looked(shared)


def test_a_parent_that_others_may_change_counts_unless_it_is_sticky(tmp_path: Path) -> None:
    shared = tmp_path / "parent" / "shared"
    shared.mkdir(parents=True)
    put(shared)
    shared.parent.chmod(0o777)
    with pytest.raises(BackendError, match="parent: mode 0777"):
        looked(shared)
    shared.parent.chmod(0o1777)
    assert list(looked(shared).received()) == ["n1"]


def test_a_link_to_the_directory_hides_no_parent_that_others_may_change(tmp_path: Path) -> None:
    shared, link = tmp_path / "scratch" / "shared", tmp_path / "link"
    shared.mkdir(parents=True)
    put(shared)
    link.symlink_to(shared)
    assert list(looked(link).received()) == ["n1"]

    shared.parent.chmod(0o777)

    with pytest.raises(BackendError, match="scratch: mode 0777"):
        looked(link)


def test_an_agent_signs_again_and_waits_for_munge(tmp_path: Path, monkeypatch) -> None:
    credentials = FakeCredentials()
    credentials.is_away = True
    one = reporter(tmp_path, said := [], credentials=credentials, timeout_s=3600.0)
    one.changed(None, REPORT)
    until(lambda: said)
    assert "Socket communication error; retrying" in said[0]
    credentials.is_away = False
    path = tmp_path / "n1.json"
    until(path.exists)
    before = path.read_text(encoding="utf-8")

    later = time.monotonic() + SIGN_EVERY.total_seconds()
    monkeypatch.setattr("holdfast.adapters.slurm.nodes.report.time.monotonic", lambda: later)

    until(lambda: path.read_text(encoding="utf-8") != before)
    one.close()
    monkeypatch.undo()
    assert path.read_text(encoding="utf-8").splitlines()[0] == before.splitlines()[0]


def test_devices_are_read_from_the_report_on_request_only(tmp_path: Path) -> None:
    memory = DeviceGroup(
        kind=DeviceKind.MEMORY,
        read_at=REPORT.reported_at,
        devices=(Device(name="MC0", values={"ecc_corrected": "3"}),),
    )
    one = reporter(tmp_path)
    one.changed(None, replace(REPORT, hardware=(memory,)))
    until((tmp_path / "n1.json").exists)
    one.close()

    reports = looked(tmp_path)
    assert reports.received()["n1"].report.hardware == ()  # of thousands of nodes
    assert reports.hardware("n1") == (memory,)
    assert reports.hardware("n2") == ()
