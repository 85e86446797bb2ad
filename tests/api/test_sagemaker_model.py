"""Requests fit SageMaker's own model, or every mistake is told; nothing else ever happens."""

import contextlib
import json
from datetime import UTC, datetime

import pytest
from api_calls import MODEL, PLACE
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.operations import OPERATIONS
from holdfast.api.problems import NotReadable, UnknownOperation, ValidationException
from holdfast.api.sagemaker_model import SageMakerModel

SERVICE = SageMakerModel()
CLUSTER_OPERATIONS = sorted(name for name in SERVICE.operations if "Cluster" in name)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda items: (
        st.lists(items, max_size=3)
        | st.dictionaries(
            st.sampled_from(["ClusterName", "NodeIds", "MaxResults", "InstanceGroups", "x"]), items
        )
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("operation", CLUSTER_OPERATIONS)
def test_what_is_required_must_be_there(operation) -> None:
    required = MODEL.operation_model(operation).input_shape.required_members
    if not required:
        assert SERVICE.read(operation, {}) == {}
        return
    with pytest.raises(ValidationException) as refused:
        SERVICE.read(operation, {})

    for name in required:
        assert f"Value at '{name[0].lower()}{name[1:]}'" in str(refused.value)


def test_members_that_the_model_does_not_have_are_found_wherever_they_are() -> None:
    group = {"InstanceGroupName": "a", "LifeCycleConfig": {"OnCreat": "x"}, "instanceCount": 1}
    request = {"ClusterName": "a", "InstanceGroups": [{}, group, 5], "Tag": [{"x": 1}]}

    found = [(path, name) for path, name, _ in SERVICE.unknown_members("CreateCluster", request)]

    assert found == [
        ("instanceGroups.2.member.lifeCycleConfig", "OnCreat"),
        ("instanceGroups.2.member", "instanceCount"),
        ("", "Tag"),
    ]
    assert list(SERVICE.unknown_members("CreateCluster", [])) == []
    [(_, _, known)] = SERVICE.unknown_members("DeleteCluster", {"x": 1})
    assert known == ["ClusterName"]


@given(st.sampled_from(CLUSTER_OPERATIONS), ANYTHING)
@settings(max_examples=examples(200))
def test_whatever_is_sent_is_read_or_refused(operation, request) -> None:
    with contextlib.suppress(NotReadable, ValidationException):
        assert SERVICE.read(operation, request).keys() <= request.keys()


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        ({"ClusterName": ""}, "satisfy regular expression pattern"),
        ({"ClusterName": "-a"}, "satisfy regular expression pattern"),
        ({"ClusterName": "a" * 257}, "have length less than or equal to 256"),
        ({"ClusterName": "a", "MaxResults": 0}, "have value greater than or equal to 1"),
        ({"ClusterName": "a", "MaxResults": 101}, "have value less than or equal to 100"),
        ({"ClusterName": "a", "SortBy": "AGE"}, "enum value set: [CREATION_TIME, NAME]"),
    ],
)
def test_each_limit_of_the_model_holds_and_is_reported(request_, rule) -> None:
    with pytest.raises(ValidationException) as refused:
        SERVICE.read("ListClusterNodes", request_)

    assert rule in str(refused.value)


@pytest.mark.parametrize(
    ("request_", "reported"),
    [
        ([], "'[]' at '.' can not be converted to structure"),
        ({"ClusterName": 3}, "'3' at 'clusterName' can not be converted to string"),
        ({"ClusterName": "a", "MaxResults": True}, "integer"),
        ({"ClusterName": "a", "MaxResults": 1.5}, "integer"),
        ({"ClusterName": "a", "MaxResults": 2**31}, "integer"),
        ({"ClusterName": "a", "IncludeNodeLogicalIds": 1}, "boolean"),
        ({"ClusterName": "a", "CreationTimeAfter": "soon"}, "timestamp"),
        ({"ClusterName": "a", "CreationTimeAfter": 1e300}, "timestamp"),
        ({"ClusterName": "a", "CreationTimeAfter": True}, "timestamp"),
    ],
)
def test_what_has_the_wrong_type_cannot_be_read(request_, reported) -> None:
    with pytest.raises(NotReadable) as refused:
        SERVICE.read("ListClusterNodes", request_)

    assert reported in str(refused.value)


def test_all_mistakes_are_reported_at_once_with_their_places() -> None:
    request = {"ClusterName": "-", "NodeIds": ["i-12345678", "x", "y"]}

    with pytest.raises(ValidationException, match=r"^3 validation errors detected") as refused:
        SERVICE.read("BatchRebootClusterNodes", request)

    for place in ("'clusterName'", "'nodeIds.2.member'", "'nodeIds.3.member'"):
        assert place in str(refused.value)


def test_a_union_has_exactly_one_member() -> None:
    storage = {"InstanceGroups": [{"InstanceStorageConfigs": [{}]}]}

    with pytest.raises(ValidationException, match="exactly one of"):
        SERVICE.read("CreateCluster", {"ClusterName": "a", **storage})


@pytest.mark.parametrize(
    "moment",
    [1767225600, 1767225600.0, "2026-01-01T00:00:00Z", "2026-01-01", "2026-01-01T01:00:00+01:00"],
)
def test_times_are_read_in_every_form_that_clients_send(moment) -> None:
    read = SERVICE.read("ListClusters", {"CreationTimeAfter": moment})

    assert read == {"CreationTimeAfter": datetime(2026, 1, 1, tzinfo=UTC)}


def test_members_that_the_model_does_not_have_are_dropped() -> None:
    assert SERVICE.read("ListClusters", {"Color": "red", "MaxResults": None}) == {}


def test_an_operation_that_there_is_not_is_reported() -> None:
    with pytest.raises(UnknownOperation, match="MakeCoffee"):
        SERVICE.read("MakeCoffee", {})


def test_all_that_is_offered_is_in_the_model() -> None:
    assert set(OPERATIONS) <= set(SERVICE.operations)


def test_a_response_that_does_not_fit_is_a_bug() -> None:
    with pytest.raises(ValueError, match="missing members"):
        SERVICE.write("DescribeCluster", {"ClusterName": "a"})
    with pytest.raises(ValueError, match="unknown members"):
        SERVICE.write("ListClusters", {"ClusterSummaries": [], "Color": "red"})


def test_a_response_can_be_sent() -> None:
    summary = {
        "ClusterArn": "arn",
        "ClusterName": "a",
        "CreationTime": datetime(2026, 1, 1, tzinfo=UTC),
        "ClusterStatus": "InService",
    }

    written = SERVICE.write("ListClusters", {"ClusterSummaries": [summary], "NextToken": None})

    assert json.loads(json.dumps(written)) == {
        "ClusterSummaries": [{**summary, "CreationTime": 1767225600.0}]
    }


@pytest.mark.parametrize(
    ("value", "is_good"),
    [("a b", True), ("café ٣", True), ("a\u3000b", True), ("a\tb", False), ("a!", False)],
)
def test_the_classes_of_unicode_in_patterns_are_understood(value, is_good) -> None:
    request = {"ResourceArn": PLACE.arn("a"), "Tags": [{"Key": "k", "Value": value}]}
    reported = contextlib.nullcontext() if is_good else pytest.raises(ValidationException)

    with reported:
        SERVICE.read("AddTags", request)
