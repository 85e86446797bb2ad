"""Every operation on clusters and every request field is in the tables, and the tables hold."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from api_calls import MODEL, Api
from botocore.model import ListShape, Shape, StructureShape
from created_calls import Lab, group

from holdfast.adapters.providers.ec2_templates import template_data
from holdfast.adapters.providers.machine_group_settings import Ec2GroupSettings
from holdfast.api.desired_groups import desired_group
from holdfast.api.field_tables import RequestField, Support
from holdfast.api.operations import OPERATIONS, UNSUPPORTED_OPERATIONS
from holdfast.api.request_fields import REQUEST_FIELDS, unsupported

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOLDFAST = Path(__file__).parents[2] / "holdfast"
TABLE = HOLDFAST / "api/request_fields.py"
PAGE = HOLDFAST.parent / "docs/reference/sagemaker-api.md"
TAGS = {"AddTags", "ListTags", "DeleteTags"}
NEW = {"MoveClusterNodes"}
"""Operations that older releases of botocore do not have."""


def is_about_clusters(operation: str) -> bool:
    return "Cluster" in operation or "ComputeQuota" in operation


def fields_of(shape: Shape, rows: dict[str, RequestField], above: str = "") -> Iterator[str]:
    """Paths of the fields of a shape, except those below a field that is not supported."""
    if isinstance(shape, ListShape):
        yield from fields_of(shape.member, rows, above)
    if isinstance(shape, StructureShape):
        for name, member in shape.members.items():
            path = f"{above}.{name}".strip(".")
            yield path
            if path in rows and rows[path].support is Support.SUPPORTED:
                yield from fields_of(member, rows, path)


REFUSED = [
    (operation, path, row)
    for operation, rows in REQUEST_FIELDS.items()
    for path, row in rows.items()
    if row.support is Support.REFUSED
]


def test_every_operation_on_clusters_is_supported_or_refused_with_a_reason() -> None:
    known = {name for name in MODEL.operation_names if is_about_clusters(name)}

    assert OPERATIONS.keys() | UNSUPPORTED_OPERATIONS.keys() == known | TAGS | NEW
    assert not OPERATIONS.keys() & UNSUPPORTED_OPERATIONS.keys()
    assert all(UNSUPPORTED_OPERATIONS.values())


def test_the_table_has_the_supported_operations() -> None:
    assert REQUEST_FIELDS.keys() == OPERATIONS.keys()


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_request_field_of_the_model_has_a_row_and_no_other_has_one(operation) -> None:
    rows = REQUEST_FIELDS[operation]

    assert set(fields_of(MODEL.operation_model(operation).input_shape, rows)) == set(rows)


def test_what_is_not_supported_has_a_reason() -> None:
    rows = [row for rows in REQUEST_FIELDS.values() for row in rows.values()]

    assert all(row.note for row in rows if row.support is not Support.SUPPORTED)


@pytest.mark.parametrize("operation", sorted(UNSUPPORTED_OPERATIONS))
def test_the_refusal_of_an_operation_has_its_reason(operation) -> None:
    code, message = Api().refused(operation)

    assert code == "UnknownOperationException"
    assert f"{operation} is not supported: {UNSUPPORTED_OPERATIONS[operation]}; " in message
    assert "supported operations: AddTags, " in message


def nested(path: str, value: object) -> dict[str, object]:
    """A request with one field, in structures rather than in lists."""
    name, _, rest = path.partition(".")
    return {name: nested(rest, value) if rest else value}


@pytest.mark.parametrize(("operation", "path", "row"), REFUSED)
def test_the_refusal_of_a_field_has_its_name_and_reason(operation, path, row) -> None:
    [problem] = unsupported(operation, nested(path, {"x": 1}))

    assert problem == f"{path} is not supported: {row.note}"


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_supported_and_ignored_fields_are_accepted(operation) -> None:
    rows = REQUEST_FIELDS[operation].items()
    request = [nested(path, "x") for path, row in rows if row.support is not Support.REFUSED]

    assert [one for each in request for one in unsupported(operation, each)] == []


def test_a_group_is_named_and_all_problems_are_reported_at_once(tmp_path) -> None:
    lab = Lab(f"sqlite:///{tmp_path}/clusters.db")
    groups = [
        group("a", TrainingPlanArn="arn:aws:sagemaker:us-east-1:123456789012:training-plan/a"),
        group("b", ImageReleaseVersion="1.2.3"),
    ]

    code, message = lab.refused("CreateCluster", ClusterName="lab", InstanceGroups=groups)

    assert code == "ValidationException"
    assert "InstanceGroups: a: TrainingPlanArn is not supported: training plans" in message
    assert "InstanceGroups: b: ImageReleaseVersion is not supported: " in message
    assert lab.records.names() == []
    lab.database.close()


def test_filters_that_could_not_be_kept_are_refused() -> None:
    operation = {"OperationId": "00000000-0000-4000-8000-000000000000"}

    code, message = Api().refused("ListClusterEvents", ClusterName="lab", **operation)

    assert code == "ValidationException"
    assert message.startswith("OperationId is not supported: ")


def test_a_field_of_a_later_model_is_refused() -> None:
    request = {"ClusterName": "a", "InstanceGroups": [{"InstanceGroupName": "g", "Color": "red"}]}

    assert list(unsupported("CreateCluster", {**request, "Shape": 1})) == [
        "InstanceGroups: g: Color is not known to this release of Holdfast; omit it",
        "Shape is not known to this release of Holdfast; omit it",
    ]


def test_code_reads_every_supported_field() -> None:
    code = "".join(
        path.read_text(encoding="utf-8") for path in HOLDFAST.rglob("*.py") if path != TABLE
    )
    read = set(re.findall(r"\"(\w+)\"", code))
    supported = {
        path.rpartition(".")[2]
        for rows in REQUEST_FIELDS.values()
        for path, row in rows.items()
        if row.support is Support.SUPPORTED
    }

    assert supported - read == set()


IGNORED_OF_GROUPS = {
    "ExecutionRole": "arn:aws:iam::123456789012:role/other",
    "SlurmConfig": {"NodeType": "Compute", "PartitionNames": ["a"]},
    "CapacityRequirements": {"OnDemand": {}},
    "NetworkInterface": {"InterfaceType": "efa"},
}


def test_ignored_fields_of_a_group_change_no_machine() -> None:
    rows = REQUEST_FIELDS["CreateCluster"]
    disks = "InstanceStorageConfigs."
    ignored = {
        path.removeprefix("InstanceGroups.")
        for path, row in rows.items()
        if row.support is Support.IGNORED and path.startswith("InstanceGroups.")
    }
    settings = Ec2GroupSettings(subnets=("subnet-1",), image="ami-1")
    plain = desired_group("lab", "uid", group("gpu"), {}, NOW, repairs=True).made_of

    assert {one.partition(".")[0] for one in ignored if not one.startswith(disks)} == set(
        IGNORED_OF_GROUPS
    )
    for name, value in IGNORED_OF_GROUPS.items():
        spec = group("gpu", **{name: value})
        made = desired_group("lab", "uid", spec, {}, NOW, repairs=True).made_of
        assert replace(made, spec={}) == replace(plain, spec={})
        data = [
            template_data(one, settings, begin={}, cores=None, region="us-east-1")
            for one in (plain, made)
        ]
        assert json.dumps(data[0]) == json.dumps(data[1]), name


def test_the_page_has_a_row_for_every_operation_and_field() -> None:
    page = PAGE.read_text(encoding="utf-8")

    for operation, reason in UNSUPPORTED_OPERATIONS.items():
        assert re.search(rf"\| `{operation}` \| refused \| .*{re.escape(reason[1:])}", page)
    for operation, rows in REQUEST_FIELDS.items():
        assert f"| `{operation}` | supported |" in page
        section = page.partition(f"\n## {operation}\n")[2].partition("\n## ")[0]
        for path, row in rows.items():
            assert f"| `{path}` | {row.support} |" in section, (operation, path)
