"""Selection, order and width of the lists of nodes, jobs and incidents."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_runs import NOW, machine, node, remediation

from holdfast.apps.cli import output
from holdfast.apps.cli.main import cli
from holdfast.apps.cli.output import Column, print_rows
from holdfast.apps.exit_codes import ExitCode
from holdfast.apps.views.not_found import NEAREST, no_such
from holdfast.apps.views.selection import RowFields, Selection, selected
from holdfast.model.health import Remedy
from holdfast.model.incidents import Incident
from holdfast.model.jobs import JobPhase
from holdfast.model.nodes import NodeRecord, Phase

AT = datetime(2026, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class Row:
    name: str
    state: str
    age_s: int
    reason: str
    job: str


FIELDS = RowFields[Row](
    states=lambda row: (row.state,),
    since=lambda row: AT - timedelta(seconds=row.age_s),
    reason=lambda row: row.reason,
    jobs=lambda row: (row.job,),
    labels={"name": lambda row: row.name},
)
texts = st.text("ab/", max_size=3)
rows = st.builds(Row, texts, st.sampled_from("xyz"), st.integers(0, 5), texts, texts)
selections = st.builds(
    Selection,
    states=st.frozensets(st.sampled_from("xyz"), max_size=2),
    since=st.none() | st.integers(0, 5).map(lambda s: timedelta(seconds=s)),
    reason=texts,
    job=texts,
    labels=st.dictionaries(st.just("name"), texts),
    sort_by=st.sampled_from(["", "since", "reason", "state", "name"]),
)


@given(st.lists(rows, max_size=8), selections)
def test_a_row_is_selected_if_and_only_if_all_options_match(found, selection) -> None:
    result = selected(found, FIELDS, selection, AT)

    def matches(row: Row) -> bool:
        last = row.job.split("/")[-1]
        return (
            (not selection.states or row.state in selection.states)
            and (selection.since is None or row.age_s <= selection.since.total_seconds())
            and selection.reason in row.reason
            and (not selection.job or selection.job in (row.job, last))
            and selection.labels.get("name", row.name) == row.name
        )

    key = str
    assert sorted(result, key=key) == sorted(filter(matches, found), key=key)
    if selection.sort_by == "since":
        assert [one.age_s for one in result] == sorted(one.age_s for one in result)
    if selection.sort_by in ("name", "state"):
        values = [getattr(one, selection.sort_by) for one in result]
        assert values == sorted(values)
    if selection.sort_by == "reason":
        assert [one.reason == "" for one in result] == sorted(one.reason == "" for one in result)


@pytest.fixture
def three(runs):
    store = runs.add("train", nodes=(1, 2, 3))
    for number, phase in ((2, Phase.QUARANTINED), (3, Phase.REBOOTING)):
        record = NodeRecord(phase=phase, phase_since=NOW, remediation=remediation(number))
        store.put_node(node(number), record)
    ended = {"released_at": NOW, "drained_at": NOW}
    for number, more in ((2, {}), (1, ended)):
        store.put(
            Incident(
                id=f"{node(number)}-20260102T030405.678",
                node=node(number),
                provider_id=machine(number),
                reason="XidReplace",
                remedy=Remedy.REPLACE,
                detected_at=NOW,
                quarantined_at=NOW,
                **more,
            )
        )
    runs.add("old", nodes=(5,), ranks=(5,), is_active=False)
    return runs


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (("nodes", "list", "--state", "quarantined,rebooting"), [node(2), node(3)]),
        (("nodes", "list", "--state", "schedulable"), [node(1)]),
        (("nodes", "list", "--since", "1d", "--sort-by", "name"), [node(2), node(3)]),
        (("nodes", "list", "--reason", "xid", "-l", f"name={node(3)}"), [node(3)]),
        (("nodes", "list", "--job", "train"), [node(1), node(2)]),
        (("jobs", "list", "--state", "active"), ["train"]),
        (("jobs", "list", "--state", "interrupted"), ["old"]),
        (("jobs", "list", "--sort-by", "name"), ["old", "train"]),
        (("jobs", "list", "--job", "train-0123abcd"), ["train"]),
        (("incidents", "list", "--state", "open"), [f"{node(2)}-20260102T030405.678"]),
        (("incidents", "list", "-l", f"node={node(1)}"), [f"{node(1)}-20260102T030405.678"]),
    ],
    ids=" ".join,
)
def test_lists_show_what_is_selected(three, argv, names) -> None:
    shown = three.call(*argv, "-o", "name")

    assert (shown.code, shown.err) == (ExitCode.OK, "")
    assert shown.out.split() == names
    assert len(three.call(*argv, "-o", "json").json) == len(names)


@pytest.mark.parametrize("kind", ["nodes", "jobs", "incidents"])
def test_titles_can_be_left_out_and_no_match_is_reported(three, kind) -> None:
    full = three.call(kind, "list").out.splitlines()
    bare = three.call(kind, "list", "--no-headers").out.splitlines()

    assert len(bare) == len(full) - 1
    assert full[0].isupper()
    none = three.call(kind, "list", "--reason", "nothing like it")
    assert (none.code, none.out) == (ExitCode.OK, "")
    assert "matches" in none.err


def test_bad_options_name_what_is_expected(three) -> None:
    state = three.call("nodes", "list", "--state", "broken")
    label = three.call("jobs", "list", "-l", "color=red")

    assert state.code == label.code == ExitCode.BAD_INPUT
    assert "'broken' is not one of joining, checking, schedulable" in state.err
    assert "'color=red' is not one of name=VALUE, cluster=VALUE" in " ".join(label.err.split())


COLUMNS = (
    Column[dict[str, str]](title="name", cell=lambda row: row["name"]),
    Column[dict[str, str]](title="step", cell=lambda row: row["step"], drop=2),
    Column[dict[str, str]](title="phase", cell=lambda row: row["phase"], drop=1),
    Column[dict[str, str]](title="message", cell=lambda row: row["message"], minor=True),
    Column[dict[str, str]](title="reason", cell=lambda row: row["reason"], whole=True),
)


@given(
    st.integers(10, 120),
    st.lists(
        st.fixed_dictionaries(
            {
                title: st.text("abc", min_size=1, max_size=30)
                for title in ("name", "step", "phase", "message", "reason")
            }
        ),
        min_size=1,
        max_size=3,
    ),
)
def test_low_value_columns_go_first_and_a_reason_is_never_cut(width, found) -> None:
    cells = [(one, [one.cell(row) for row in found]) for one in COLUMNS]
    kept = [one.title for one, _ in output._without_dropped(cells, width)]

    assert kept in (
        ["name", "step", "phase", "message", "reason"],
        ["name", "phase", "message", "reason"],
        ["name", "message", "reason"],
    )


def test_a_narrow_terminal_shows_the_whole_reason(capsys, monkeypatch) -> None:
    row = {"name": "n1", "step": "1" * 9, "phase": "p" * 9, "message": "m" * 40, "reason": "r" * 40}
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    print_rows([row], COLUMNS, output="table", empty="")
    titles, line = capsys.readouterr().out.splitlines()

    assert titles.split() == ["NAME", "MESSAGE", "REASON"]
    assert line.endswith("r" * 40)
    assert len(line) <= 60
    print_rows([{**row, "reason": "r" * 70}], COLUMNS, output="table", empty="")
    assert "r" * 70 in capsys.readouterr().out  # wrapped, not cut
    wide = {**row, "name": "n" * 28, "reason": "r" * 40}
    print_rows([wide], COLUMNS, output="table", empty="")
    assert capsys.readouterr().out.splitlines()[1].split() == ["n" * 28, "m" * 7 + "…", "r" * 40]


def test_an_unknown_name_lists_the_nearest_five() -> None:
    names = [f"i-{number:05}" for number in range(5000)]
    said = no_such("node", "i-0123", names)

    assert said.count("i-0") == 1 + 1 + NEAREST  # what was typed, the guess, the nearest
    assert said.endswith("and 4995 more")
    assert no_such("node", "x", ["a"]) == "node 'x' not found. Existing nodes: a"
    assert no_such("node", "x", []) == "node 'x' not found; there are no nodes"


def texts_of(command: click.Command, path: str):
    context = click.Context(command, info_name=path, max_content_width=80, terminal_width=80)
    yield path, command.get_help(context)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            one = command.get_command(context, name)
            assert one is not None
            yield from texts_of(one, f"{path} {name}")


def test_all_help_fits_80_columns() -> None:
    wide = [
        (path, line)
        for path, text in texts_of(cli, "holdfast")
        for line in text.splitlines()
        if len(line) > 80
    ]
    assert wide == []


def test_cancelled_runs_are_no_active_jobs(runs) -> None:
    runs.add("done", phase=JobPhase.CANCELLED)
    assert runs.call("jobs", "list", "--state", "cancelled", "-o", "name").out == "done\n"
    assert runs.call("jobs", "list", "--state", "active", "-o", "name").out == ""
