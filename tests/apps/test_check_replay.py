"""``holdfast check replay``: a node that flips a bit is found by the same steps on pairs."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from checked_node import CheckedNode
from pair_node import TOKEN, serving

from holdfast.apps.main import run
from holdfast.model.names import Condition

STEPS = """
import os, random, struct, sys
from holdfast.training import replay_steps, replayed
faults, draw = random.Random(os.urandom(8)), random.Random(7)
def flipped(value):
    bits, = struct.unpack("<Q", struct.pack("<d", value))
    return struct.unpack("<d", struct.pack("<Q", bits ^ 1 << faults.randrange(52)))[0]
values = [draw.random() for _ in range(100_000)]
print("holdfast: replay on a test")
if sys.argv[1] == "fails":
    sys.exit("out of memory")
for step in range(replay_steps()):
    factor = draw.random()
    products = [one * factor for one in values]
    if sys.argv[1] == "flips":  # one bit in one of 10^5 products
        place = faults.randrange(len(products))
        products[place] = flipped(products[place])
    replayed(step, sum(products))
"""


@pytest.fixture
def served(tmp_path: Path, capfd, monkeypatch) -> Iterator[Callable[..., Any]]:
    monkeypatch.setenv("HOLDFAST_CHECK_TOKEN", TOKEN)
    script = tmp_path / "steps.py"
    script.write_text(STEPS, encoding="utf-8")
    with ExitStack() as stack:

        def ask(*kinds: str) -> tuple[int, dict[str, Any], list[str], str]:
            names = []
            for number, kind in enumerate(kinds):
                folder = tmp_path / f"{number}"
                folder.mkdir()
                node = CheckedNode(folder, capfd.readouterr)
                command = json.dumps([sys.executable, str(script), kind])
                node.more = f"replay_command = {command}\nreplay_steps = 12\n"
                port, _ = stack.enter_context(serving(node.write_config()))
                names.append(f"127.0.0.1:{port}")
            argv = ["check", "replay", "--nodes", ",".join(names), "--on", "serve"]
            code = run([*argv, "--output", "json"])
            captured = capfd.readouterr()
            return code, json.loads(captured.out), names, captured.err

        yield ask


def test_a_node_that_flips_one_bit_in_one_of_1e5_products_is_named(served) -> None:
    code, result, names, said = served("good", "good", "flips", "good", "good", "good")

    assert code == 1, said
    assert result["bad_nodes"] == [names[2]]
    assert "the results differ from step " in said
    checks = {check["node"]: check["parts"][0] for check in result["checks"]}
    [finding] = checks[names[2]]["findings"]
    assert (finding["condition"], finding["remedy"]) == (Condition.DEEP_CHECK, "replace")
    assert [name for name, part in checks.items() if part["findings"]] == [names[2]]


def test_good_nodes_have_the_same_results(served) -> None:
    code, result, _, said = served("good", "good", "good", "good")

    assert (code, result["bad_nodes"]) == (0, []), said


def test_steps_that_fail_are_no_evidence_against_a_node(served) -> None:
    _, result, _, said = served("good", "good", "good", "fails")

    assert result["bad_nodes"] == []
    assert "exited with 1: out of memory" in said
