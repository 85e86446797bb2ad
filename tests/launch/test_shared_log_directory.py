"""Two jobs on one node, or on one file system, with the same log directory and name."""

import os
import socket
from pathlib import Path

from holdfast.apps.launch.rank_output import LogOptions, RankOutput
from holdfast.apps.launch.stderr_relay import StderrRelay


def test_two_jobs_at_a_time_do_not_share_files(tmp_path: Path, capsys) -> None:
    options = LogOptions(directory=str(tmp_path), to_file=3, to_both=0, shown=frozenset())
    with StderrRelay() as relay:
        first = RankOutput(options, "none", "default", relay)
        capsys.readouterr()
    with StderrRelay() as relay:
        second = RankOutput(options, "none", "default", relay)
        named = RankOutput(options, "other", "default", relay)

    assert first.folder(0, 1) == tmp_path / "none" / "attempt_0" / "1"
    own = tmp_path / "none" / f"{socket.gethostname()}-{os.getpid()}"
    assert second.folder(0, 1) == own / "attempt_0" / "1"
    assert named.folder(0, 1) == tmp_path / "other" / "attempt_0" / "1"
    for one in (first, second, named):
        one.close(keeps_evidence=False)


def test_a_job_continues_in_the_directory_of_one_that_has_ended(tmp_path: Path) -> None:
    options = LogOptions(directory=str(tmp_path), to_file=3, to_both=0, shown=frozenset())
    with StderrRelay() as relay:
        for _ in range(2):
            output = RankOutput(options, "none", "default", relay)
            assert output.folder(0, 1) == tmp_path / "none" / "attempt_0" / "1"
            output.close(keeps_evidence=False)


def test_launchers_of_one_job_have_directories_of_their_own(tmp_path: Path) -> None:
    options = LogOptions(directory=str(tmp_path), to_file=3, to_both=0, shown=frozenset())
    with StderrRelay() as relay:
        outputs = [RankOutput(options, "none", "default", relay, name) for name in ("a", "b")]
    for name, output in zip(("a", "b"), outputs, strict=True):
        assert output.folder(0, 1) == tmp_path / "none" / name / "attempt_0" / "1"
        output.close(keeps_evidence=False)
