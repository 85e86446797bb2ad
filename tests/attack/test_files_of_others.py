"""Nothing secret goes to a file of another user, and no key is read from one."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.apps.api.config import load_api_config
from holdfast.apps.main import run
from holdfast.kit.rotated_lines import RotatedLines
from holdfast.model.errors import BackendError, ConfigError

NOBODY = 65534
KEY = """
[[keys]]
access_key_id = "AKIAOPERATEOPERATE22"
secret_access_key = "operate-operate-operate"
role = "admin"
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="an attack changes its user: run as root")


@pytest.fixture
def theirs() -> Iterator[Path]:
    """A private file of a local user in a directory that everybody may write, made in advance."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        path = Path(folder, "keys.toml")
        plant = "import os, sys; os.umask(0o077); open(sys.argv[1], 'w').write(sys.argv[2])"
        subprocess.run(
            ["python3", "-c", plant, str(path), KEY],
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            check=True,
        )
        yield path


def test_no_key_is_appended_to_it(theirs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["api", "--new-key", "admin", "--out", str(theirs)]) == 2

    assert "is not a regular file that only this user may access" in capfd.readouterr().err
    assert theirs.read_text(encoding="utf-8") == KEY


def test_no_audit_log_is_appended_to_it(theirs: Path) -> None:
    with pytest.raises(BackendError, match="is not a regular file that only this user may access"):
        RotatedLines(theirs).append("who did what")

    assert theirs.read_text(encoding="utf-8") == KEY


def test_no_key_is_read_from_it(theirs: Path) -> None:
    with pytest.raises(ConfigError, match=f"belongs to user {NOBODY}, expected this user"):
        load_api_config(theirs)


def test_the_file_that_is_checked_is_the_one_that_is_read(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the directory puts its file in place between the check and the read."""
    own = theirs.with_name("own.toml")
    own.touch(0o600)
    own.write_text(KEY.replace("admin", "view"), encoding="utf-8")
    theirs_hidden, link = theirs, theirs.with_name("link.toml")
    link.symlink_to(own)
    checked = os.fstat

    def swapped(handle: int) -> os.stat_result:
        found = checked(handle)
        link.unlink()
        link.symlink_to(theirs_hidden)
        return found

    monkeypatch.setattr(os, "fstat", swapped)

    assert [key.role for key in load_api_config(link).keys] == ["view"]
