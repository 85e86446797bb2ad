import contextlib
import json
import math
import os
import sqlite3
import subprocess
import sys
import time

import pytest

from holdfast.kit.sqlite_files import (
    PromptBackup,
    UnrecoverableDatabase,
    back_up,
    backup_of,
    create_private,
    errors_named,
    recover,
)
from holdfast.model.errors import StateDamaged


def write(path, *values) -> None:
    create_private(path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("CREATE TABLE IF NOT EXISTS entries (value TEXT)")
        db.execute("BEGIN")  # one transaction: each is synced to disk
        db.executemany("INSERT INTO entries VALUES (?)", [(value,) for value in values])
        db.execute("COMMIT")


def entries(path) -> list[str]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return [value for (value,) in db.execute("SELECT value FROM entries ORDER BY rowid")]


def overwrite_header(path) -> None:
    with path.open("r+b") as file:
        file.write(b"x" * 100)


def overwrite_pages(path) -> None:
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))


def truncate(path) -> None:
    os.truncate(path, 0)


def replace_with_text(path) -> None:
    path.write_text("this is no database" * 1000, encoding="utf-8")


DAMAGE = [overwrite_header, overwrite_pages, truncate, replace_with_text]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "state?#.db"  # characters with a meaning in a URI
    write(path, *(str(number) for number in range(2000)))
    return path


@pytest.mark.attack
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_database_is_moved_aside_and_its_backup_restored(path, damage) -> None:
    assert recover(path) == ""
    before = entries(path)
    write(path, "after the backup")

    damage(path)
    damaged = path.read_bytes()
    told = recover(path)

    [aside] = [one for one in path.parent.iterdir() if one.name.startswith(f"{path.name}.damaged-")
               and not one.name.endswith(("-wal", "-shm"))]  # fmt: skip
    assert f"{path} was damaged (" in told
    assert f"moved to {aside}" in told
    assert "was restored; later changes are lost" in told
    assert aside.read_bytes() == damaged
    assert entries(path) == before
    assert recover(path) == ""


LIMITED = """
import pathlib, resource, sys
from holdfast.kit.sqlite_files import recover
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
recover(pathlib.Path(sys.argv[1]), may_begin_empty=True)
"""


def test_nothing_is_moved_while_there_is_no_room_for_what_is_restored(path) -> None:
    write(path, "x" * 100_000)
    recover(path)
    before = entries(path)
    overwrite_pages(path)
    files = {one.name: one.read_bytes() for one in path.parent.iterdir()}

    done = subprocess.run([sys.executable, "-c", LIMITED, path], check=False, capture_output=True)

    assert b"File too large" in done.stderr
    assert {one.name: one.read_bytes() for one in path.parent.iterdir()} == files
    assert "was restored" in recover(path, may_begin_empty=True)
    assert entries(path) == before


@pytest.mark.parametrize("damage", [overwrite_header, overwrite_pages, replace_with_text])
def test_without_a_backup_the_file_stays_unless_the_owner_can_begin_empty(path, damage) -> None:
    damage(path)
    damaged = path.read_bytes()

    with pytest.raises(UnrecoverableDatabase, match="is not a valid backup; restore a copy"):
        recover(path)
    assert path.read_bytes() == damaged

    assert "starts empty" in recover(path, may_begin_empty=True)
    assert not path.exists()


def test_a_damaged_backup_is_not_restored(path) -> None:
    recover(path)
    overwrite_header(path)
    overwrite_header(backup_of(path))

    with pytest.raises(UnrecoverableDatabase):
        recover(path)


RECORD = json.dumps({"phase": "schedulable", "why": "x" * 300})
SPOILED = [b"\x95", b"\0", b'"', b"\xff\xfe", b" "]
"""What a damaged block may hold in place of JSON; SQLite does not notice."""


def write_record(path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE nodes (name TEXT PRIMARY KEY, record TEXT NOT NULL)")
        db.execute("INSERT INTO nodes VALUES ('node-1', ?)", (RECORD,))
        db.commit()


def read_record(path) -> object:
    with errors_named(path, "restart it"), contextlib.closing(sqlite3.connect(path)) as db:
        [(text,)] = db.execute("SELECT record FROM nodes")
        return json.loads(text)


@pytest.mark.parametrize("spoiled", SPOILED)
@pytest.mark.parametrize("count", [1, len(RECORD)])
def test_json_that_a_damaged_block_holds_is_restored(path, spoiled, count) -> None:
    write_record(path)
    assert recover(path) == ""
    content = path.read_bytes()
    at = content.index(RECORD.encode())
    length = count * len(spoiled) if count == 1 else count // len(spoiled) * len(spoiled)
    path.write_bytes(content[:at] + (spoiled * count)[:length] + content[at + length :])

    with pytest.raises(StateDamaged, match="; restart it"):
        read_record(path)
    assert "record in nodes cannot be read" in recover(path)
    assert read_record(path) == json.loads(RECORD)


def test_a_damaged_name_is_restored_and_a_file_without_a_better_backup_stays(path) -> None:
    write_record(path)
    content = path.read_bytes().replace(b"node-1", b"node-\xff")
    path.write_bytes(content)
    assert recover(path) == ""
    assert path.read_bytes() == content
    assert not backup_of(path).exists()

    path.write_bytes(content.replace(b"node-\xff", b"node-1"))
    assert recover(path) == ""
    path.write_bytes(content)
    assert "name in nodes cannot be read" in recover(path)


def test_a_copy_of_a_damaged_database_replaces_no_backup(path) -> None:
    recover(path)
    before = entries(backup_of(path))
    overwrite_pages(path)

    with pytest.raises(sqlite3.DatabaseError):
        back_up(path, backup_of(path))

    assert entries(backup_of(path)) == before
    assert not [one for one in path.parent.iterdir() if one.name.startswith(".")]


def test_the_files_of_a_database_are_for_their_owner_only(path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("INSERT INTO entries VALUES ('x')")
        db.commit()
        for part in path.parent.iterdir():
            part.chmod(0o644)
        recover(path)
        modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}

    assert len(modes) == 4
    assert set(modes.values()) == {0o600}


@pytest.mark.attack
def test_a_new_database_is_private_and_a_link_in_its_place_is_not_followed(tmp_path) -> None:
    write(tmp_path / "new.db")
    assert (tmp_path / "new.db").stat().st_mode & 0o777 == 0o600
    (tmp_path / "link.db").symlink_to(tmp_path / "elsewhere")
    create_private(tmp_path / "link.db")
    assert not (tmp_path / "elsewhere").exists()


def test_a_change_is_backed_up_at_once_and_the_next_one_after_a_pause(path, monkeypatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    backup = PromptBackup(path)
    assert backup(1) == math.inf
    made = backup_of(path).stat().st_mtime_ns
    assert backup(1) == math.inf
    assert backup_of(path).stat().st_mtime_ns == made

    write(path, "new")
    pause = backup(2)
    assert 0 < pause < math.inf
    assert "new" not in entries(backup_of(path))
    now += pause
    assert backup(2) == math.inf
    assert entries(backup_of(path))[-1] == "new"


def test_a_backup_that_failed_is_made_again(path, monkeypatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    backup = PromptBackup(path)
    content = path.read_bytes()
    overwrite_pages(path)
    pause = backup(1)
    assert 0 < pause < math.inf
    assert not backup_of(path).exists()

    path.write_bytes(content)
    now += pause
    assert backup(1) == math.inf
    assert entries(backup_of(path)) == entries(path)


def test_nothing_is_made_where_there_is_no_database(tmp_path) -> None:
    assert recover(tmp_path / "state.db", may_begin_empty=True) == ""
    assert list(tmp_path.iterdir()) == []
