import errno
import json
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click
import pytest
import yaml
from click.testing import CliRunner

from holdfast import __version__
from holdfast.apps.cli.main import COMMANDS, CommandRow, cli
from holdfast.apps.cli.output import (
    Column,
    OutputFormat,
    age,
    confirm_or_abort,
    format_table,
    output_option,
    print_details,
    print_next,
    print_rows,
    yes_option,
)
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.main import LIGHT, run

HOLDFAST = [sys.executable, "-m", "holdfast"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_row_of_the_table_is_a_command_with_help(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert isinstance(command, click.Command)
    assert command.name == name
    assert command.get_short_help_str()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    done = subprocess.run([*HOLDFAST, name, "--help"], capture_output=True, check=False)

    assert done.returncode == ExitCode.OK
    assert b"usage" in done.stdout.lower()
    assert done.stderr == b""


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=path)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from commands(found, f"{path} {name}")


def test_no_help_shows_how_it_is_marked_up() -> None:
    found = dict(commands(cli, "holdfast"))
    texts = {path: one.get_help(click.Context(one, info_name=path)) for path, one in found.items()}

    assert len(found) > len(COMMANDS)
    assert [path for path, text in texts.items() if "\\b" in text or "\b" in text] == []


def test_what_a_group_lists_is_never_cut() -> None:
    groups = {
        path: one.get_help(click.Context(one, info_name=path))
        for path, one in commands(cli, "holdfast")
        if isinstance(one, click.Group)
    }

    listed = {path: text[text.index("\nCommands:") :] for path, text in groups.items()}
    assert len(listed) > 10
    assert [path for path, text in listed.items() if re.search(r"[a-z,;]\.\.\.$", text, re.M)] == []


def test_help_lists_every_command_and_loads_none() -> None:
    show = (
        "import sys; from holdfast.apps.main import run; code = run(['--help']);"
        "print(*sys.modules, file=sys.stderr); sys.exit(code)"
    )

    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, check=True, encoding="utf-8"
    )

    assert all(f"  {name} " in done.stdout for name in COMMANDS)
    loaded = set(done.stderr.split())
    assert loaded.isdisjoint(row.module for row in COMMANDS.values())
    assert loaded.isdisjoint({"rich", "numpy", "sqlite3", "json"})


def test_the_version_is_reported_without_loading_commands() -> None:
    result = CliRunner().invoke(cli, ["--version"])
    show = (
        "import sys; from holdfast.__main__ import main; main();"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", show, "--version"], capture_output=True, check=True, encoding="utf-8"
    )

    assert done.stdout == result.output == f"holdfast {__version__}\n"
    assert {"click", "typing", "enum"}.isdisjoint(done.stderr.split())


@pytest.mark.parametrize(
    ("typed", "reported"),
    [
        ("rum", "No such command 'rum'. Did you mean 'run'?\n"),
        ("incident", "No such command 'incident'. Did you mean 'incidents'?\n"),
        ("xyz", "No such command 'xyz'.\n"),
        ("check prolg", "No such command 'prolg'. Did you mean 'prolog'?\n"),
        ("slurm xyz", "No such command 'xyz'.\n"),
    ],
)
def test_an_unknown_command_is_bad_input_and_the_nearest_name_is_reported(
    typed: str, reported: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(typed.split()) == ExitCode.BAD_INPUT
    assert capsys.readouterr().err.endswith(reported)


def test_an_unknown_option_is_bad_input() -> None:
    assert run(["--no-such-option"]) == ExitCode.BAD_INPUT


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
@pytest.mark.parametrize(
    "argv",
    [
        ("simulate", "--days"),
        ("simulate", "--faults-per-1000-node-days"),
        ("scan", "nccl-tests", "-", "--least-gbps"),
        ("scan", "stress-ng", "-", "--seconds"),
        ("check", "baseline", "-", "--percentile"),
    ],
    ids=" ".join,
)
def test_what_is_no_number_is_none_on_the_command_line(argv: tuple[str, ...], text: str) -> None:
    assert run([*argv, text]) == ExitCode.BAD_INPUT


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])

    assert result.exit_code == ExitCode.OK
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in result.output


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("", [f"plain,{name}" for name in COMMANDS]),
        ("com", ["plain,completion"]),
        ("--v", ["plain,--version"]),
        ("completion b", ["plain,bash"]),
    ],
)
def test_the_shell_completes_what_was_typed(typed: str, completed: list[str]) -> None:
    words = f"holdfast {typed}"
    done = subprocess.run(
        HOLDFAST,
        env={
            **os.environ,
            "_HOLDFAST_COMPLETE": "bash_complete",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        },
        capture_output=True,
        check=False,
        encoding="utf-8",
    )

    assert done.stdout.split() == completed


class Process:
    """A process of the table whose ``main`` does what a test says."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "process_of_a_test.py"
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setitem(LIGHT, "process", self._file.stem)

    def run(self, body: str, *arguments: str) -> int:
        sys.modules.pop(self._file.stem, None)
        self._file.write_text(
            f"import errno\nfrom holdfast.model.errors import *\ndef main(argv):\n    {body}\n",
            encoding="utf-8",
        )
        return run(["process", *arguments])


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Process:
    return Process(tmp_path, monkeypatch)


def test_the_exit_code_is_what_the_process_returns(process: Process) -> None:
    assert process.run("return len(argv)", "a", "b", "c") == 3


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("ConfigError(['a: x', 'b: y'])", ExitCode.BAD_INPUT, "holdfast: a: x\nholdfast: b: y\n"),
        ("StorageFull('/x is full')", ExitCode.BAD_INPUT, "holdfast: /x is full\n"),
        ("BackendError('no answer')", ExitCode.FAILED, "holdfast: no answer\n"),
        ("HoldfastError('no')", ExitCode.FAILED, "holdfast: no\n"),
        ("HoldfastError('\\x1b[2Ja\\n\\tb')", ExitCode.FAILED, "holdfast: �[2Ja\n\tb\n"),
        ("RecursionError()", ExitCode.BAD_INPUT, "holdfast: the input is nested too deeply"),
        (
            "OSError(errno.EACCES, 'Permission denied', '/x')",
            ExitCode.FAILED,
            "holdfast: Permission denied: /x\n",
        ),
        (
            "OSError(errno.ENOSPC, 'No space left on device')",
            ExitCode.BAD_INPUT,
            "holdfast: No space left on device\n",
        ),
        ("OSError(errno.EDQUOT, 'Quota exceeded')", ExitCode.BAD_INPUT, "holdfast: Quota exceed"),
        (
            "UnicodeEncodeError('utf-8', 'a\\udce9', 1, 2, 'no')",
            ExitCode.BAD_INPUT,
            "holdfast: '\\udce9' in a name or a value is not valid UTF-8",
        ),
        (
            "ModuleNotFoundError('no', name='yaml')",
            ExitCode.BAD_INPUT,
            "holdfast: yaml is not installed: pip install 'holdfast[kubernetes]'",
        ),
        (
            "ModuleNotFoundError('no x', name='holdfast.x')",
            ExitCode.INTERNAL_ERROR,
            "holdfast: internal error: ModuleNotFoundError: no x",
        ),
        ("BrokenPipeError()", ExitCode.FAILED, ""),
        ("KeyboardInterrupt()", ExitCode.INTERRUPTED, ""),
        ("ValueError('oops')", ExitCode.INTERNAL_ERROR, "holdfast: internal error: ValueError: oo"),
    ],
)
def test_each_error_is_put_into_words_and_has_its_exit_code(
    process: Process,
    capsys: pytest.CaptureFixture[str],
    error: str,
    code: ExitCode,
    message: str,
) -> None:
    assert process.run(f"raise {error}") == code

    output = capsys.readouterr().err
    assert output.startswith(message) if message else output == ""
    assert "Traceback" not in output


def without_yaml(environment: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    """``holdfast`` as ``make demo`` has installed it: without the packages of Kubernetes."""
    show = "import sys; sys.modules['yaml'] = None; from holdfast.apps.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", show, *argv],
        env={**os.environ, **environment},
        capture_output=True,
        check=False,
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    "argv", [("nodes", "list", "--platform", "kubernetes"), ("hyperpod", "--help")], ids=" ".join
)
def test_what_kubernetes_needs_is_reported_where_it_is_not_installed(
    argv: tuple[str, ...], tmp_path: Path
) -> None:
    kubeconfig = tmp_path / "config"
    kubeconfig.write_text('kind: "Config"\n', encoding="utf-8")  # not as kubectl writes it

    ended = without_yaml({"KUBECONFIG": str(kubeconfig)}, *argv)

    assert (ended.returncode, ended.stdout) == (ExitCode.BAD_INPUT, "")
    assert ended.stderr == ("holdfast: yaml is not installed: pip install 'holdfast[kubernetes]'\n")


def test_completion_says_nothing_of_what_is_not_installed() -> None:
    words = {"COMP_WORDS": "holdfast nodes describe --context x ", "COMP_CWORD": "5"}

    ended = without_yaml({"_HOLDFAST_COMPLETE": "bash_complete", **words})

    assert (ended.returncode, ended.stdout.strip(), ended.stderr) == (ExitCode.OK, "", "")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("return 3", ExitCode.PARTLY_DONE),
        ("return None", ExitCode.OK),
        ("raise click.exceptions.Exit(3)", ExitCode.PARTLY_DONE),
        ("raise click.ClickException('no')", ExitCode.FAILED),
        ("raise KeyboardInterrupt", ExitCode.INTERRUPTED),
    ],
)
def test_a_command_ends_with_what_it_returned_or_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, code: ExitCode
) -> None:
    text = f"import click\n@click.command()\ndef act():\n    {body}\n"
    (tmp_path / "command_of_a_test.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "command_of_a_test", raising=False)
    monkeypatch.setitem(COMMANDS, "act", CommandRow("Act.", "command_of_a_test"))

    assert run(["act"]) == code


def test_the_traceback_is_shown_on_demand(
    process: Process, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_DEBUG", "1")

    assert process.run("raise ValueError('oops')") == ExitCode.INTERNAL_ERROR

    assert "Traceback" in capsys.readouterr().err


PRINTS: dict[str, list[str]] = {
    "a command": [*HOLDFAST, "--help"],
    "a light process": [
        sys.executable,
        "-c",
        "import sys, types\n"
        "from holdfast.apps.main import LIGHT, run\n"
        "sys.modules['x'] = types.SimpleNamespace(main=lambda argv: print('x') or 0)\n"
        "LIGHT['x'] = 'x'\n"
        "sys.exit(run(['x']))",
    ],
}


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
"""Only then an error can come as late as at the end of the process."""


@pytest.mark.parametrize("argv", PRINTS.values(), ids=PRINTS)
def test_a_full_disk_behind_standard_output_is_reported_once(argv: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = subprocess.run(argv, env=BUFFERED, stdout=full, stderr=subprocess.PIPE, check=False)

    assert done.returncode == ExitCode.BAD_INPUT
    assert done.stderr.decode() == f"holdfast: {os.strerror(errno.ENOSPC)}\n"


@pytest.mark.parametrize("argv", PRINTS.values(), ids=PRINTS)
def test_a_reader_that_has_seen_enough_is_no_error_to_report(argv: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(argv, env=BUFFERED, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)

    assert done.returncode == ExitCode.FAILED
    assert done.stderr == b""


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["--help"], ExitCode.OK),
        (["jobs", "list"], ExitCode.OK),
        (["run", "--name", "job", "--boot-time", "0s", "--", "sh", "-c", "exit 0"], ExitCode.OK),
        (["nodes", "reboot", "0"], ExitCode.FAILED),
    ],
)
def test_closed_standard_streams_are_no_error(
    argv: list[str], code: ExitCode, tmp_path: Path
) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" <&- >&- 2>"$ERRORS"', "sh", *HOLDFAST, *argv],
        env={**os.environ, "HOLDFAST_HOME": str(tmp_path), "ERRORS": str(tmp_path / "errors")},
        check=False,
    )

    reported = (tmp_path / "errors").read_text(encoding="utf-8")
    assert (done.returncode, "internal error" in reported) == (code, False)


def test_what_the_caller_closed_has_no_number_that_a_file_could_get() -> None:
    show = (
        "import os, sys; from holdfast.apps import main\n"
        "def show(_):\n"
        "    print(*map(os.readlink, ('/proc/self/fd/0', '/proc/self/fd/1')), file=sys.stderr)\n"
        "    return 0\n"
        "main.run = show\n"
        "main.main()"
    )
    argv = ["sh", "-c", '"$@" <&- >&-', "sh", sys.executable, "-c", show]
    done = subprocess.run(argv, stderr=subprocess.PIPE, check=False, encoding="utf-8")

    assert done.stderr.split() == ["/dev/null", "/dev/null"]


def test_what_an_interrupted_command_has_printed_is_kept() -> None:
    show = (
        "from holdfast.apps import main\n"
        "def interrupted(_):\n"
        "    print('line', end='')\n"
        "    return 130\n"
        "main.run = interrupted\n"
        "main.main()"
    )
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
    argv = [sys.executable, "-c", show]
    done = subprocess.run(argv, capture_output=True, check=False, env=buffered)

    assert (done.returncode, done.stdout) == (130, b"line")


def test_a_terminal_that_lacks_a_letter_is_shown_its_number(tmp_path: Path) -> None:
    name = tmp_path / "→.log"
    name.write_text("NVRM: Xid (PCI:0000:b9:00): 74, pid=1, NVLink\n", encoding="utf-8")
    done = subprocess.run(
        [*HOLDFAST, "scan", "kernel-log", str(name)],
        env={**os.environ, "PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
        encoding="latin-1",
    )

    assert (done.returncode, done.stderr) == (ExitCode.OK, "")
    assert "\\u2192.log" in done.stdout


@dataclass(frozen=True)
class Thing:
    name: str
    phase: str
    note: str = ""


COLUMNS = [
    Column[Thing](title="name", cell=lambda thing: thing.name),
    Column[Thing](title="phase", cell=lambda thing: thing.phase),
    Column[Thing](title="note", cell=lambda thing: thing.note, wide=True),
]


def test_a_table_is_plain_aligned_text_where_nobody_looks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = [Thing("a", "running"), Thing("longer", "")]

    print_rows(rows, COLUMNS, output=OutputFormat.TABLE, empty="none")

    assert capsys.readouterr().out == "NAME    PHASE\na       running\nlonger  -\n"


def test_wide_columns_are_shown_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Thing("a", "x", "n" * 300)], COLUMNS, output=OutputFormat.WIDE, empty="none")

    assert "n" * 300 in capsys.readouterr().out


def test_json_holds_the_whole_things(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Thing("a", "x", "n")], COLUMNS, output=OutputFormat.JSON, empty="none")

    assert json.loads(capsys.readouterr().out) == [{"name": "a", "phase": "x", "note": "n"}]


def test_yaml_holds_what_json_holds(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Thing("a", "x: y")], COLUMNS, output=OutputFormat.YAML, empty="none")

    assert capsys.readouterr().out == '- name: a\n  phase: "x: y"\n  note: ""\n'


@pytest.mark.parametrize("output", [OutputFormat.JSON, OutputFormat.YAML])
def test_documents_that_come_one_by_one_are_kept_apart(
    output: OutputFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        print_next(Thing(name, "x"), output)

    read = capsys.readouterr().out
    found = (
        list(yaml.safe_load_all(read))
        if output is OutputFormat.YAML
        else [json.loads(line) for line in read.splitlines()]
    )
    assert [one["name"] for one in found] == ["a", "b"]


def test_no_rows_are_a_sentence_for_people_and_an_empty_array_for_programs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_rows([], COLUMNS, output=OutputFormat.TABLE, empty="No things yet.")
    print_rows([], COLUMNS, output=OutputFormat.JSON, empty="No things yet.")

    assert capsys.readouterr() == ("[]\n", "No things yet.\n")


def test_details_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    print_details([("Name", "a"), ("Last fault", None)])

    assert capsys.readouterr().out == "Name:        a\nLast fault:  -\n"


def test_text_of_a_log_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_rows([Thing("a\x1b[2J\nb", "x")], COLUMNS, output=OutputFormat.TABLE, empty="")

    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("width", [7, 10, 20, 30, 40, 60])
def test_a_table_fits_the_terminal(width: int) -> None:
    lines = format_table(["id", "name", "message"], [["1", "n" * 30, "m" * 90]], width=width)

    assert max(map(len, lines)) <= width
    assert "…" in lines[1]


def test_what_matters_least_is_cut_first_and_a_name_last() -> None:
    titles, row = ["name", "note", "message"], ["n" * 30, "o" * 20, "m" * 20]

    def cut(width: int) -> list[int]:
        line = format_table(titles, [row], width=width, minor=[1, 2])[1]
        return [len(cell) for cell in line.split("  ")]

    assert cut(64) == [30, 15, 15]
    assert cut(50) == [30, 8, 8]
    assert cut(40) == [20, 8, 8]
    assert cut(28) == [8, 8, 8]
    assert cut(20) == [8, 4, 4]
    assert cut(15) == [8, 1, 2]
    line = format_table(titles, [row], width=60, minor=[2])[1]
    assert [len(cell) for cell in line.split("  ")] == [30, 18, 8]
    assert cut(10) == [4, 1, 1]


def test_rows_are_kept_apart_as_long_as_anything_else_can_be_cut() -> None:
    titles, row = ["node", "phase", "health"], ["n" * 28, "p" * 11, "h" * 11]

    line = format_table(titles, [row], width=40)[1]

    assert [len(cell) for cell in line.split("  ")] == [20, 8, 8]


def test_what_fits_is_not_cut() -> None:
    rows = [["abcdefghi", "abcdefghi"]]

    assert format_table(["id", "name"], rows, width=20)[1] == "abcdefghi  abcdefghi"
    assert format_table(["id", "name"], rows, width=19)[1] == "abcdefghi  abcdefg…"


def on_terminal(environment: dict[str, str], output: OutputFormat = OutputFormat.TABLE) -> str:
    """What a table looks like on a terminal of 40 columns."""
    show = (
        "from holdfast.apps.cli.output import *\n"
        "columns = [Column(title='phase', cell=lambda row: row), "
        "Column(title='note', cell=lambda row: 'n' * 90)]\n"
        f"print_rows(['running', 'failed'], columns, output={output.value!r}, empty='')\n"
    )
    master, slave = pty.openpty()
    subprocess.run(
        [sys.executable, "-c", show],
        stdout=slave,
        check=True,
        env={**os.environ, "COLUMNS": "40", "TERM": "xterm", **environment},
    )
    os.close(slave)
    text = os.read(master, 65536).decode()
    os.close(master)
    return text


def test_a_terminal_gets_colors_and_its_own_width() -> None:
    text = on_terminal({"NO_COLOR": ""})

    assert "\x1b[32mrunning\x1b[0m" in text
    assert "\x1b[31mfailed\x1b[0m" in text
    assert "  " + "n" * 30 + "…\r\n" in text  # 7 + 2 + 31 = 40


def test_a_word_that_is_cut_keeps_its_color() -> None:
    assert "\x1b[32mrunn…\x1b[0m" in on_terminal({"NO_COLOR": "", "COLUMNS": "8"})


def test_a_wide_table_is_not_cut() -> None:
    assert "n" * 90 in on_terminal({"NO_COLOR": "1"}, OutputFormat.WIDE)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"}])
def test_colors_can_be_turned_off(environment: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal(environment)


def test_an_age_is_a_duration_or_a_dash() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert age(now - timedelta(minutes=90), now) == "1h30m"
    assert age(None, now) == "-"


@click.command()
@output_option(OutputFormat.TABLE, OutputFormat.JSON)
@yes_option
def destroy(output: str, yes: bool) -> None:
    confirm_or_abort("Destroy it?", yes=yes)
    click.echo(f"destroyed {output}")


def test_the_first_form_is_the_default_and_others_are_refused() -> None:
    assert CliRunner().invoke(destroy, ["--yes"]).output == "destroyed table\n"
    assert CliRunner().invoke(destroy, ["--yes", "-o", "json"]).output == "destroyed json\n"
    assert CliRunner().invoke(destroy, ["-o", "wide"]).exit_code == ExitCode.BAD_INPUT


def test_without_a_terminal_a_destructive_act_needs_yes() -> None:
    result = CliRunner().invoke(destroy, [], input="y\n")

    assert result.exit_code == ExitCode.BAD_INPUT
    assert "confirm with --yes" in result.output
    assert "destroyed" not in result.output


def asked_on_terminal(answer: bytes) -> subprocess.CompletedProcess[str]:
    ask = (
        "from holdfast.apps.cli.output import confirm_or_abort\n"
        "confirm_or_abort('Destroy it?', yes=False)\n"
        "print('destroyed')\n"
    )
    master, slave = pty.openpty()
    os.write(master, answer)
    done = subprocess.run(
        [sys.executable, "-c", ask], stdin=slave, capture_output=True, check=False, encoding="utf-8"
    )
    os.close(master)
    os.close(slave)
    return done


def test_on_a_terminal_the_person_decides() -> None:
    assert "destroyed" in asked_on_terminal(b"y\n").stdout
    refused = asked_on_terminal(b"n\n")
    assert "destroyed" not in refused.stdout
    assert "Nothing was changed." in refused.stderr


PLAYED_ELSEWHERE = {"holdfast agent", "holdfast launch", "holdfast slurm supervise"}
"""These read their command line themselves: they start without click."""


def leaves() -> dict[str, click.Command]:
    found = dict(commands(cli, "holdfast"))
    return {path: one for path, one in found.items() if not isinstance(one, click.Group)}


def examples_in(path: str, command: click.Command) -> list[list[str]]:
    """The command lines, in words, that a command's help shows beside its prose."""
    text = command.get_help(click.Context(command, info_name=path)).split("\n", 1)[1]
    text = re.sub(r" \\\n +", " ", text)  # a continued line
    lines = re.findall(r"^(?: {4}(?! )|  +\S+:  ).*?(holdfast [a-z].*)$", text, re.MULTILINE)
    return [shlex.split(re.split(r" [|>&]|   |\)", line)[0]) for line in lines]


def is_called(path: str, words: list[str]) -> bool:
    return words[: len(path.split())] == path.split()


@pytest.mark.parametrize("path", sorted(leaves().keys() - PLAYED_ELSEWHERE))
def test_every_command_has_an_example(path: str) -> None:
    assert any(is_called(path, words) for words in examples_in(path, leaves()[path]))


def test_every_example_is_a_command_line_that_is_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").touch()
    known = leaves()
    for path in sorted(known.keys() - PLAYED_ELSEWHERE):
        for words in examples_in(path, known[path]):
            meant = max((one for one in known if is_called(one, words)), key=len, default="")
            assert meant, f"{path} shows {words}"
            if meant not in PLAYED_ELSEWHERE:
                with known[meant].make_context(meant, words[len(meant.split()) :]) as context:
                    assert context.params.keys()


def test_the_agents_examples_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(["agent", "--help"])
    shown = re.findall(r"^  holdfast agent (.+)$", capsys.readouterr().out, re.MULTILINE)

    assert shown
    for line in shown:
        with pytest.raises(SystemExit) as ended:
            run(["agent", *shlex.split(line), "--help"])
        assert ended.value.code == ExitCode.OK


def names_of(command: click.Command) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}


ON_FILES = {"holdfast check show", "holdfast checkpoint show"}
NAMED = {
    "holdfast nodes list",
    "holdfast jobs list",
    "holdfast incidents list",
    "holdfast clusters list",
    "holdfast clusters nodes",
    "holdfast checkpoint list",
}
LISTED = {"list", "describe", "show"}


def test_whatever_is_listed_or_described_comes_in_every_form_and_can_be_watched() -> None:
    for path, command in leaves().items():
        if path.split()[-1] in LISTED and path not in ON_FILES:
            [form] = [one for one in command.params if one.name == "output"]
            assert isinstance(form.type, click.Choice)
            names = ["name"] if path in NAMED else []
            assert list(form.type.choices) == ["table", "wide", "json", "yaml", *names], path
            assert "--watch" in names_of(command), path


def test_what_asks_before_it_acts_can_be_answered_and_tried_in_advance() -> None:
    asking = [one for one in leaves().values() if "--yes" in names_of(one)]

    assert asking
    assert all("--dry-run" in names_of(one) for one in asking)
