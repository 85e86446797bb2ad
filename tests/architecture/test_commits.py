"""Subjects of recent commits have the form that CONTRIBUTING.md describes."""

import re
import shutil
import subprocess

import pytest
from source_tree import ROOT

SUBJECT = re.compile(r"[a-z][a-z0-9 .,/-]*: [a-z]\S* \S.*[^.\s]")
MAX_CHARS = 72
RECENT = 20


def is_valid(subject: str) -> bool:
    return len(subject) <= MAX_CHARS and SUBJECT.fullmatch(subject) is not None


@pytest.mark.parametrize(
    ("subject", "is_accepted"),
    [
        ("slurm: requeue jobs of a node that is powered down", True),
        ("kubernetes, slurm: respond to losses that are NaN or spike", True),
        ("decisions: " + "a " * 30 + "b", True),
        ("decisions: " + "a " * 30 + "bc", False),
        ("Requeue jobs of a node that is powered down", False),
        ("slurm: Requeue jobs of a node", False),
        ("slurm: requeue jobs of a node.", False),
        ("slurm: requeue", False),
    ],
)
def test_the_form_of_a_subject(subject: str, *, is_accepted: bool) -> None:
    assert is_valid(subject) is is_accepted


def test_recent_commits_have_valid_subjects() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    log = subprocess.run(
        ["git", "log", "--no-merges", f"--max-count={RECENT}", "--format=%s"],
        cwd=ROOT,
        capture_output=True,
        check=False,
        encoding="utf-8",
    )
    if log.returncode:
        pytest.skip(f"git log: {log.stderr.strip()}")

    assert [one for one in log.stdout.splitlines() if not is_valid(one)] == []
