"""Every command of docs/tutorial/first-hour.md works as written, in its order."""

import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from local_run import DEADLINE_S, LocalRun

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tutorial/first-hour.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)(?: title=\"([^\"\n]*)\")?\n(.*?)^```", re.DOTALL | re.MULTILINE)
READ_ONLY = ("list", "describe", "logs", "scan")


@dataclass(frozen=True)
class Step:
    command: str
    terminal: str
    shown: tuple[str, ...]
    """Output that the page shows, without what differs from run to run."""

    @property
    def may_repeat(self) -> bool:
        return any(word in READ_ONLY for word in self.command.split())


def stable(text: str) -> list[str]:
    """Its lines, with ``#`` for each word that holds a number."""
    lines = [re.sub(r"\S*\d\S*", "#", line) for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line.strip()]


def steps() -> list[Step]:
    found = []
    for language, title, body in BLOCK.findall(PAGE):
        if language == "console":
            for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, _, output = part.partition("\n")
                found.append(Step(command, title, tuple(stable(output))))
    return found


def is_in_order(shown: tuple[str, ...], printed: list[str]) -> bool:
    rest = iter(printed)
    return all(line in rest for line in shown)


@dataclass
class Reader:
    """Somebody who types what the page says, in an empty directory."""

    folder: Path
    environment: dict[str, str]

    def bash(self, command: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            ["bash", "-c", f"exec {command}" if command.startswith("holdfast") else command],
            cwd=self.folder, env=self.environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip

    def does(self, step: Step) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            process = self.bash(step.command)
            output, _ = process.communicate(timeout=DEADLINE_S)
            is_shown = is_in_order(step.shown, stable(output))
            if (process.returncode == 0 and is_shown) or not step.may_repeat:
                break
            if time.monotonic() > deadline:
                break
            time.sleep(0.2)
        assert (step.command, process.returncode) == (step.command, 0), output
        assert is_shown, f"{step.command} printed {stable(output)}, the page shows {step.shown}"


def prepared(home: Path, environment: dict[str, str]) -> tuple[Path, str]:
    """The directory and the PATH of a shell, with this home, after the first commands."""
    (block,) = [body for language, _, body in BLOCK.findall(PAGE) if language == "sh"]
    # Else `make demo` would take the variables of a `make test-all ARGS=...` around the tests.
    of_make = ("ARGS", "MAKEFLAGS")
    environment = {key: value for key, value in environment.items() if key not in of_make}
    shown = subprocess.run(
        ["bash", "-ec", f'{block}\nprintf "%s\\n" "$PWD" "$PATH"'],
        cwd=ROOT, env={**environment, "HOME": str(home)}, text=True, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, check=True, timeout=DEADLINE_S,
    ).stdout.splitlines()  # fmt: skip
    assert any("identical bit for bit" in line for line in shown), shown
    return Path(shown[-2]), shown[-1]


@pytest.fixture
def reader(run: LocalRun, tmp_path: Path) -> Reader:
    folder, path = prepared(tmp_path, run.environment)
    assert folder == tmp_path / "first-hour"
    for language, title, body in BLOCK.findall(PAGE):
        if language == "python":
            (folder / title).write_text(body, encoding="utf-8")
    return Reader(folder, {**run.environment, "PATH": path, "COLUMNS": "200"})


def test_the_commands_of_the_tutorial_do_what_it_shows(reader: Reader) -> None:
    beside = None
    try:
        for step in steps():
            if step.terminal:
                beside = reader.bash(step.command)
            else:
                reader.does(step)
        assert beside is not None
        assert "resuming from step" in beside.communicate(timeout=DEADLINE_S)[0]
    finally:
        if beside is not None and beside.poll() is None:
            beside.send_signal(signal.SIGTERM)
            beside.communicate(timeout=DEADLINE_S)


def test_the_tutorial_leads_through_every_part() -> None:
    commands = " ".join(step.command for step in steps())
    for part in ("run", "inject", "incidents", "describe", "reboot", "cancel", "scan", "simulate"):
        assert f" {part}" in commands
