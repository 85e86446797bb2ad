"""JSON files of Orbax, which have no checksum: other saves show damage to names in them."""

import copy
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
    assert text == "default/_sharding has an invalid sharding of layer.w"


def test_what_may_change_between_saves_is_no_damage(orbax: Path) -> None:
    for step, device in (("200", 2), ("300", 3)):
        path = orbax / step / "default/_sharding"
        path.write_text(path.read_text().replace("cpu:0", f"cpu:{device}"))
        path = orbax / step / "default/_METADATA"
        tree = json.loads(path.read_text())
        tree["custom_metadata"] = {f"saved_{step}": f"run_{device}"}
        if step == "300":
            added = copy.deepcopy(tree["tree_metadata"]["('layer', 'w')"])
            added["key_metadata"][0]["key"] = "layes"
            tree["tree_metadata"]["('layes', 'w')"] = added
        path.write_text(json.dumps(tree))

    assert verified(orbax, "300", Depth.HASHES).state is CheckpointState.COMPLETE


def test_deep_or_foreign_json_is_damage_and_not_an_error(orbax: Path) -> None:
    path = orbax / "300/default/_sharding"
    for text in ('{"a": ' + "[" * 10000 + "]" * 10000 + "}", '{"a": [1, {"b": null}]}', '{"a": 1}'):
        path.write_text(text)
        assert verified(orbax, "300", Depth.HASHES).state is CheckpointState.DAMAGED


MESH = {"sharding_type": "NamedSharding", "shape": [2, 2], "axis_names": ["a", "b"]}
DEVICES = [[{"id": 0}, {"id": 1}], [{"id": 2}, {"id": 3}]]


@pytest.mark.parametrize(
    ("more", "is_valid"),
    [
        ({"partition_spec": ["a", None]}, True),
        ({"partition_spec": [["a", "b"], []], "axis_types": None}, True),
        ({"partition_spec": [], "axis_types": ["AxisType.Auto", "AxisType.Explicit"]}, True),
        ({"partition_spec": ["b"], "device_mesh": {"mesh": DEVICES}}, True),
        ({"partition_spec": ["a", "a"]}, False),
        ({"partition_spec": [["a", "b"], "b"]}, False),
        ({"partition_spec": [["a", None]]}, False),
        ({"partition_spec": ["c"]}, False),
        ({"partition_spec": None}, False),
        ({"partition_spec": [], "shape": [2]}, False),
        ({"partition_spec": [], "axis_types": ["AxisType.Auto"]}, False),
        ({"partition_spec": [], "axis_types": ["Auto", "Auto"]}, False),
        ({"partition_spec": [], "device_mesh": {"mesh": DEVICES[:1]}}, False),
        ({"partition_spec": [], "device_mesh": {"mesh": [{"id": None}] * 4}}, False),
    ],
)
def test_a_sharding_on_a_mesh_has_the_form_that_orbax_reads(
    orbax: Path, more: dict[str, object], is_valid: bool
) -> None:
    path = orbax / "100/default/_sharding"
    path.write_text(
        json.dumps(dict.fromkeys(json.loads(path.read_text()), json.dumps(MESH | more)))
    )

    assert (verified(orbax, "100").state is CheckpointState.COMPLETE) == is_valid


def test_a_shape_that_the_checkpoint_before_has_is_missed(orbax: Path) -> None:
    path = orbax / "300/default/array_metadatas/process_0"
    path.write_text(json.dumps({"array_metadatas": []}))

    [text] = verified(orbax, "300", Depth.HASHES).problems
    assert text == (
        "default/array_metadatas/process_0 does not have layer.w as the checkpoint before does"
    )


@pytest.mark.parametrize("name", ["_sharding", "array_metadatas", "_METADATA"])
def test_a_file_that_is_missing_is_known_from_the_checkpoint_before(orbax: Path, name: str) -> None:
    path = orbax / "300/default" / name
    path.rename(orbax.parent / "moved")

    one = verified(orbax, "300")
    assert one.state is CheckpointState.INCOMPLETE
    assert one.problems == (f"default/{name} is missing, but 200 has it",)
