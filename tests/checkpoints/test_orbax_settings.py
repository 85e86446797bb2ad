"""JSON files of Orbax, which have no checksum: other saves show damage to names in them."""

import json
import re
from pathlib import Path

import pytest
from recorded import flip, unpacked, verified, zero

from holdfast.model.checkpoints import CheckpointState, Depth

FILES = ("_METADATA", "_sharding", "array_metadatas/process_0")


@pytest.fixture
def orbax(tmp_path: Path) -> Path:
    return unpacked("orbax", tmp_path) / "one_item"


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_letter_is_seen(orbax: Path, name: str) -> None:
    path = orbax / "300/default" / name
    whole = path.read_bytes()
    for found in re.finditer(rb"[A-Za-z_]", whole):
        flip(path, found.start())
        one = verified(orbax, "300", Depth.HASHES)
        assert one.state is CheckpointState.DAMAGED, (found.start(), one)
        path.write_bytes(whole)
    assert verified(orbax, "300", Depth.HASHES).state is CheckpointState.COMPLETE


@pytest.mark.parametrize("name", FILES)
def test_zeros_at_the_start_are_seen_without_an_older_checkpoint(orbax: Path, name: str) -> None:
    zero(orbax / "100/default" / name, 0, 64)

    [text] = verified(orbax, "100").problems
    assert text == f"default/{name} is not a JSON object"


def test_a_row_without_a_key_that_orbax_reads_is_damage(orbax: Path) -> None:
    path = orbax / "100/default/array_metadatas/process_0"
    path.write_text(path.read_text().replace("write_shape", "write_shapes"))

    [text] = verified(orbax, "100").problems
    assert text == "default/array_metadatas/process_0 has an array without write_shape"


def test_a_sharding_that_is_no_object_is_damage(orbax: Path) -> None:
    path = orbax / "100/default/_sharding"
    path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), "{")))

    [text] = verified(orbax, "100").problems
    assert text == "default/_sharding has an invalid sharding"


def test_what_may_change_between_saves_is_no_damage(orbax: Path) -> None:
    for step, device in (("200", 2), ("300", 3)):
        path = orbax / step / "default/_sharding"
        path.write_text(path.read_text().replace("cpu:0", f"cpu:{device}"))
        path = orbax / step / "default/_METADATA"
        tree = json.loads(path.read_text())
        tree["custom_metadata"] = {f"saved_{step}": f"run_{device}"}
        if step == "300":
            tree["tree_metadata"]["('layes', 'w')"] = tree["tree_metadata"]["('layer', 'w')"]
        path.write_text(json.dumps(tree))

    assert verified(orbax, "300", Depth.HASHES).state is CheckpointState.COMPLETE


def test_deep_or_foreign_json_is_damage_and_not_an_error(orbax: Path) -> None:
    path = orbax / "300/default/_sharding"
    for text in ('{"a": ' + "[" * 10000 + "]" * 10000 + "}", '{"a": [1, {"b": null}]}', '{"a": 1}'):
        path.write_text(text)
        assert verified(orbax, "300", Depth.HASHES).state is CheckpointState.DAMAGED
