"""The README: one screen, small pictures that load nothing, figures that can be measured again."""

import re
import sys

import pytest
from source_tree import ROOT

sys.path.insert(0, str(ROOT / "tools"))

from render_pictures import PICTURES, excerpt

README = (ROOT / "README.md").read_text(encoding="utf-8")
SHOWN = sorted(PICTURES.iterdir())
LARGEST = 200_000
LINES = 110


def test_it_fits_one_screen() -> None:
    assert README.count("\n") <= LINES


def test_each_figure_names_a_benchmark_that_is_there() -> None:
    table = README.partition("| `make bench` |")[2].partition("\n\n")[0]
    rows = [row.split("|")[1:-1] for row in table.splitlines()[2:]]

    assert len(rows) > 5
    for *_, command in rows:
        name = re.fullmatch(r" `ARGS=(\w+)` ", command)
        assert name, command
        assert (ROOT / "bench" / f"{name[1]}.py").is_file(), command


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_a_picture_is_small_and_shown(path) -> None:
    assert path.stat().st_size < LARGEST
    assert f"](docs/pictures/{path.name})" in README


def test_a_drawing_loads_nothing_from_other_hosts() -> None:
    [path] = [path for path in SHOWN if path.suffix == ".svg"]
    addresses = re.findall(r"\bhttps?://[^\"' <)]+", path.read_text(encoding="utf-8"))

    assert set(addresses) == {"http://www.w3.org/2000/svg"}


def test_the_excerpt_of_the_demo_ends_the_first_fault_where_the_second_begins() -> None:
    lines = [
        *("1. The job without faults.", "[ 0.1s] x runs"),
        *("   >>> xid 74 on a", "[ 3.3s] a quarantined", "[ 3.6s] released"),
        *("   >>> kill-rank on b", "[ 9.0s] b"),
        *("3. The timeline", "", "FAULT  NODE", "xid 74  a", "Equal to the bit"),
    ]

    shown = excerpt(lines)
    assert shown[:3] == lines[2:5]
    assert shown[3] == "... and so on for: kill-rank"
    assert shown[-3:] == lines[-3:]
