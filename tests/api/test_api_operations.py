"""The operations, as botocore's parser reads their answers."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from api_calls import ADA, BOB, MODEL, PLACE, Api, signed
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.clusters import cluster_id, instance_id
from holdfast.api.identity import REQUIRED_ROLE, Role
from holdfast.api.operations import OPERATIONS
from holdfast.model.incidents import Incident
from holdfast.model.names import DeepCheck
from holdfast.model.requests import Verb
from holdfast.model.sagemaker import InstanceStatus
from tests.engines.fake_clusters import ShownCluster

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def lab() -> ShownCluster:
    lab = ShownCluster("lab", NOW)
    for number in range(3):
        lab.add(f"gpu-{number}", NOW + number * MINUTE)
    lab.add("cpu-0", NOW, group="helpers")
    return lab


@pytest.fixture
def api(lab) -> Api:
    return Api([lab, ShownCluster("other", NOW - MINUTE)])


# clusters


def test_clusters_are_listed_and_described(api) -> None:
    listed = api.call("ListClusters", SortBy="NAME")["ClusterSummaries"]
    described = api.call("DescribeCluster", ClusterName="lab")

    assert [one["ClusterName"] for one in listed] == ["lab", "other"]
    assert described["ClusterArn"] == listed[0]["ClusterArn"] == PLACE.arn(cluster_id("lab"))
    assert (described["ClusterStatus"], described["CreationTime"]) == ("InService", NOW)
    groups = {one["InstanceGroupName"]: one for one in described["InstanceGroups"]}
    assert {name: one["CurrentCount"] for name, one in groups.items()} == {
        "workers": 3,
        "helpers": 1,
    }
    assert groups["workers"]["InstanceType"] == "ml.p5.48xlarge"


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ({}, ["other", "lab"]),
        ({"SortOrder": "Descending"}, ["lab", "other"]),
        ({"NameContains": "th"}, ["other"]),
        ({"CreationTimeAfter": (NOW - MINUTE).timestamp()}, ["lab"]),
        ({"CreationTimeBefore": NOW.timestamp()}, ["other"]),
    ],
)
def test_clusters_are_sorted_and_chosen(api, request_, names) -> None:
    listed = api.call("ListClusters", **request_)["ClusterSummaries"]

    assert [one["ClusterName"] for one in listed] == names


def test_a_plain_run_answers_to_its_name_and_is_no_cluster(lab, api) -> None:
    lab.is_listed = False

    listed = api.call("ListClusters")["ClusterSummaries"]

    assert [one["ClusterName"] for one in listed] == ["other"]
    assert api.call("DescribeCluster", ClusterName="lab")["ClusterName"] == "lab"


def test_a_cluster_goes_by_its_name_and_by_its_arn(api) -> None:
    by_arn = api.call("DescribeCluster", ClusterName=PLACE.arn(cluster_id("lab")))

    assert by_arn["ClusterName"] == "lab"
    assert api.refused("DescribeCluster", ClusterName="nowhere")[0] == "ResourceNotFound"


# nodes


def test_nodes_are_listed_and_described(api, lab) -> None:
    listed = api.call("ListClusterNodes", ClusterName="lab")["ClusterNodeSummaries"]
    node = lab.members[1]
    by_id = api.call("DescribeClusterNode", ClusterName="lab", NodeId=node.instance_id)
    by_name = api.call("DescribeClusterNode", ClusterName="lab", NodeLogicalId=node.name)

    assert {one["InstanceId"] for one in listed} == {one.instance_id for one in lab.members}
    assert by_id["NodeDetails"] == by_name["NodeDetails"]
    details = by_id["NodeDetails"]
    assert (details["NodeLogicalId"], details["LaunchTime"]) == (node.name, node.launched_at)
    assert details["InstanceStatus"] == {"Status": "Running"}


@pytest.mark.parametrize(
    ("addresses", "shown"),
    [
        ((), (None, None)),
        (("node-7.example",), (None, None)),
        (("10.0.0.7", "10.0.0.8", "node-7"), ("10.0.0.7", None)),
        (("127.0.0.1", "fe80::7", "::1"), (None, None)),
        (("node-7", "fd00::7", "10.0.0.7", "fd00::8"), ("10.0.0.7", "fd00::7")),
    ],
)
def test_a_node_is_described_with_its_first_address_of_each_version(addresses, shown) -> None:
    cluster = ShownCluster("lab", NOW)
    node = cluster.add("node-7", NOW, addresses=addresses)
    api = Api([cluster])

    found = api.call("DescribeClusterNode", ClusterName="lab", NodeId=node.instance_id)
    [listed] = api.call("ListClusterNodes", ClusterName="lab")["ClusterNodeSummaries"]

    details = found["NodeDetails"]
    assert (details.get("PrivatePrimaryIp"), details.get("PrivatePrimaryIpv6")) == shown
    assert details["PrivateDnsHostname"] == listed["PrivateDnsHostname"] == "node-7"


def test_logical_ids_are_shown_to_those_who_ask(api) -> None:
    plain = api.call("ListClusterNodes", ClusterName="lab")["ClusterNodeSummaries"]
    full = api.call("ListClusterNodes", ClusterName="lab", IncludeNodeLogicalIds=True)

    assert all("NodeLogicalId" not in one for one in plain)
    assert all("NodeLogicalId" in one for one in full["ClusterNodeSummaries"])


@pytest.mark.parametrize("request_", [{}, {"NodeId": "i-12345678", "NodeLogicalId": "gpu-0"}])
def test_a_node_is_named_in_one_way(api, request_) -> None:
    refused = api.refused("DescribeClusterNode", ClusterName="lab", **request_)

    assert refused[0] == "ValidationException"


def test_a_node_that_is_not_there_is_not_found(api) -> None:
    refused = api.refused("DescribeClusterNode", ClusterName="lab", NodeId="i-12345678")

    assert refused == ("ResourceNotFound", "Instance with id i-12345678 not found")


@given(
    count=st.integers(0, 25),
    size=st.integers(1, 7),
    by=st.sampled_from(["NAME", "CREATION_TIME"]),
    order=st.sampled_from(["Ascending", "Descending"]),
    gone=st.sets(st.integers(0, 24)),
)
@settings(max_examples=examples(40), deadline=None)
def test_pages_hold_every_node_that_stays_once_and_in_order(count, size, by, order, gone) -> None:
    lab = ShownCluster("lab", NOW)
    for number in range(count):
        lab.add(f"n{number}", NOW + (number % 3) * MINUTE)
    api, found, token = Api([lab]), [], None
    wanted = {"ClusterName": "lab", "MaxResults": size, "SortBy": by, "SortOrder": order}
    staying = [one for number, one in enumerate(lab.members) if number not in gone]
    while True:
        answer = api.call("ListClusterNodes", **wanted, **({"NextToken": token} if token else {}))
        found += [one["InstanceId"] for one in answer["ClusterNodeSummaries"]]
        assert len(answer["ClusterNodeSummaries"]) <= size
        token = answer.get("NextToken")
        lab.members = staying  # some nodes go between two pages
        if token is None:
            break

    def key(one):
        return (one.instance_id if by == "NAME" else one.launched_at, one.instance_id)

    order_of_all = sorted(staying, key=key, reverse=order == "Descending")
    kept = {one.instance_id for one in staying}
    assert [one for one in found if one in kept] == [one.instance_id for one in order_of_all]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("token", ["x", "e30=", "WzEsIDJd", "é", "W10="])
def test_a_token_that_is_none_of_ours_is_refused(api, token) -> None:
    refused = api.refused("ListClusterNodes", ClusterName="lab", NextToken=token)

    assert refused[0] == "ValidationException"


# what is asked for


@pytest.mark.parametrize(
    ("operation", "verb"),
    [("BatchRebootClusterNodes", Verb.REBOOT), ("BatchReplaceClusterNodes", Verb.REPLACE)],
)
def test_repairs_are_asked_for_and_each_refusal_says_why(api, lab, operation, verb) -> None:
    first, second, third = lab.members[:3]
    lab.rejection[second.name] = "it is being replaced"
    ids = [first.instance_id, second.instance_id, "i-12345678"]

    answer = api.call(operation, ClusterName="lab", NodeIds=ids, NodeLogicalIds=[third.name, "no"])

    assert answer["Successful"] == [first.instance_id]
    assert {one["NodeId"]: one["ErrorCode"] for one in answer["Failed"]} == {
        second.instance_id: "InvalidInstanceStatus",
        "i-12345678": "InstanceIdNotFound",
    }
    assert answer["SuccessfulNodeLogicalIds"] == [third.name]
    assert [one["NodeLogicalId"] for one in answer["FailedNodeLogicalIds"]] == ["no"]
    assert lab.requested == [(first.name, verb, "ada"), (third.name, verb, "ada")]


def test_a_repair_of_no_node_is_refused(api) -> None:
    refused = api.refused("BatchRebootClusterNodes", ClusterName="lab")

    assert refused[0] == "ValidationException"


def test_health_checks_are_asked_for_by_group_and_by_node(api, lab) -> None:
    wanted = [
        {"InstanceGroupName": "helpers", "DeepHealthChecks": ["InstanceStress"]},
        {
            "InstanceGroupName": "workers",
            "InstanceIds": [lab.members[0].instance_id],
            "DeepHealthChecks": ["InstanceStress", "InstanceConnectivity"],
        },
    ]

    api.call("StartClusterHealthCheck", ClusterName="lab", DeepHealthCheckConfigurations=wanted)

    assert sorted(lab.requested) == [
        ("cpu-0", Verb.DEEP_CHECK, "ada"),
        ("gpu-0", Verb.DEEP_CHECK, "ada"),
    ]
    stress, connectivity = DeepCheck.STRESS, DeepCheck.CONNECTIVITY
    assert lab.checks == {"cpu-0": (stress,), "gpu-0": (stress, connectivity)}


def test_a_node_that_is_named_twice_has_the_checks_of_both(api, lab) -> None:
    kinds = ("InstanceConnectivity", "InstanceStress")
    wanted = [{"InstanceGroupName": "helpers", "DeepHealthChecks": [kind]} for kind in kinds]

    api.call("StartClusterHealthCheck", ClusterName="lab", DeepHealthCheckConfigurations=wanted)

    assert lab.checks == {"cpu-0": (DeepCheck.STRESS, DeepCheck.CONNECTIVITY)}


@pytest.mark.parametrize(
    "wanted",
    [
        {"InstanceGroupName": "none"},
        {"InstanceGroupName": "helpers", "InstanceIds": ["i-12345678"]},
    ],
)
def test_health_checks_of_what_is_not_there_are_refused_and_none_begins(api, lab, wanted) -> None:
    good = {"InstanceGroupName": "workers", "DeepHealthChecks": ["InstanceStress"]}
    bad = {**wanted, "DeepHealthChecks": ["InstanceStress"]}

    refused = api.refused(
        "StartClusterHealthCheck", ClusterName="lab", DeepHealthCheckConfigurations=[good, bad]
    )

    assert (refused[0], lab.requested) == ("ResourceNotFound", [])


def test_nodes_that_cannot_be_checked_now_are_left_out_and_reported_if_none_can(api, lab) -> None:
    group = {"InstanceGroupName": "workers", "DeepHealthChecks": ["InstanceStress"]}
    wanted = {"ClusterName": "lab", "DeepHealthCheckConfigurations": [group]}
    lab.rejection = {"gpu-0": "gpu-0 is being replaced"}
    assert "ClusterArn" in api.call("StartClusterHealthCheck", **wanted)
    assert sorted(name for name, _, _ in lab.requested) == ["gpu-1", "gpu-2"]

    lab.rejection = {f"gpu-{n}": f"gpu-{n} is being replaced" for n in range(3)}
    code, message = api.refused("StartClusterHealthCheck", **wanted, Nonce=1)
    assert code == "ValidationException"
    assert all(why in message for why in lab.rejection.values())


@pytest.mark.parametrize(
    "operation", sorted(name for name in OPERATIONS if REQUIRED_ROLE[name] is not Role.VIEW)
)
def test_a_key_for_reading_changes_nothing(api, lab, operation) -> None:
    wanted = {"InstanceGroupName": "workers", "DeepHealthChecks": ["InstanceStress"]}
    tag = {"Key": "team", "Value": "a"}
    request = {  # members that an operation does not have are dropped
        "DeepHealthCheckConfigurations": [wanted],
        "NodeIds": [lab.members[0].instance_id],
        "NodesToAdd": [{"InstanceGroupName": "workers", "IncrementTargetCountBy": 1}],
        "ResourceArn": PLACE.arn(cluster_id("lab")),
        "Tags": [tag],
        "TagKeys": ["team"],
        "Name": "a",
        "ClusterArn": PLACE.arn(cluster_id("lab")),
        "SchedulerConfig": {},
        "ComputeQuotaConfig": {},
        "ComputeQuotaTarget": {"TeamName": "red"},
        "ClusterSchedulerConfigId": "0" * 12,
        "ComputeQuotaId": "0" * 12,
        "TargetVersion": 1,
    }

    code, message = api.refused(operation, BOB, ClusterName="lab", **request)

    assert code == "AccessDeniedException"
    assert f"sagemaker:{operation}" in message
    assert lab.requested == []


# events


def an_incident(**changes) -> Incident:
    values = {
        "id": "i1",
        "node": "gpu-0",
        "provider_id": "fake/gpu-0",
        "reason": "Xid74",
        "remedy": "reboot",
        "message": "NVLink",
        "detected_at": NOW,
        "quarantined_at": NOW,
    }
    return Incident(**{**values, **changes})


def test_each_step_of_an_incident_is_an_event(api, lab) -> None:
    lab.past = [
        an_incident(
            drained_at=NOW + MINUTE, repaired_at=NOW + 2 * MINUTE, released_at=NOW + 3 * MINUTE
        )
    ]

    events = api.call("ListClusterEvents", ClusterName="lab")["Events"]

    assert [one["EventTime"] for one in events] == [NOW + n * MINUTE for n in (3, 2, 1, 0)]
    assert [one["EventLevel"] for one in events] == ["Info", "Info", "Info", "Error"]
    assert "Xid74: NVLink" in events[-1]["Description"]
    assert {one["InstanceId"] for one in events} == {instance_id("fake/gpu-0")}
    assert {one["InstanceGroupName"] for one in events} == {"workers"}
    for event in events:
        found = api.call("DescribeClusterEvent", ClusterName="lab", EventId=event["EventId"])
        assert found["EventDetails"]["Description"] == event["Description"]


def test_an_incident_of_a_checkpoint_is_no_event_of_the_cluster(api, lab) -> None:
    lab.past = [an_incident(node="", provider_id="", job="llm")]

    assert api.call("ListClusterEvents", ClusterName="lab")["Events"] == []


def test_after_a_replacement_the_events_name_the_node_that_came_instead(api, lab) -> None:
    lab.past = [
        an_incident(
            remedy="replace",
            successor="gpu-9",
            successor_id="fake/gpu-9",
            repaired_at=NOW + MINUTE,
            checked_at=NOW + 2 * MINUTE,
            released_at=NOW + 3 * MINUTE,
            check_remarks="InstanceConnectivity skipped: no other node",
        )
    ]

    events = api.call("ListClusterEvents", ClusterName="lab")["Events"]

    released, checked, repaired, detected = events
    assert detected["InstanceId"] == instance_id("fake/gpu-0")
    assert {one["InstanceId"] for one in events[:3]} == {instance_id("fake/gpu-9")}
    assert released["Description"] == "gpu-9 is schedulable"
    assert checked["Description"] == (
        "gpu-9 passed its deep health check; InstanceConnectivity skipped: no other node"
    )
    assert checked["EventLevel"] == "Warn"
    assert repaired["Description"].startswith(f"gpu-0 ({instance_id('fake/gpu-0')}) was replaced")


def test_a_check_that_was_skipped_is_reported_as_skipped(api, lab) -> None:
    lab.past = [an_incident(released_at=NOW + MINUTE, check_remarks="InstanceStress skipped: no")]

    texts = [
        one["Description"] for one in api.call("ListClusterEvents", ClusterName="lab")["Events"]
    ]

    assert "The check of gpu-0 was skipped; InstanceStress skipped: no" in texts
    assert not any("passed" in text for text in texts)


@pytest.mark.parametrize("reason", ["ReplaceRequested", "DeepHealthCheckPartner"])
def test_planned_work_is_no_error(api, lab, reason) -> None:
    lab.past = [an_incident(reason=reason, message="planned")]

    (event,) = api.call("ListClusterEvents", ClusterName="lab")["Events"]
    found = api.call("DescribeClusterEvent", ClusterName="lab", EventId=event["EventId"])

    assert event["EventLevel"] == "Info"
    metadata = found["EventDetails"]["EventDetails"]["EventMetadata"]
    assert "FailureMessage" not in metadata["Instance"]


@pytest.mark.parametrize(
    ("request_", "count"),
    [
        ({"SortOrder": "Ascending"}, 2),
        ({"NodeId": instance_id("fake/gpu-0")}, 1),
        ({"InstanceGroupName": "helpers"}, 1),
        ({"EventTimeAfter": NOW.timestamp()}, 1),
        ({"EventTimeBefore": (NOW + MINUTE).timestamp()}, 1),
        ({"ResourceType": "Cluster"}, 0),
        ({"MaxResults": 1}, 1),
    ],
)
def test_events_are_chosen(api, lab, request_, count) -> None:
    later = an_incident(id="i2", node="cpu-0", provider_id="fake/cpu-0", detected_at=NOW + MINUTE)
    lab.past = [an_incident(), later]

    assert len(api.call("ListClusterEvents", ClusterName="lab", **request_)["Events"]) == count


def test_an_event_that_is_not_there_is_not_found(api) -> None:
    refused = api.refused(
        "DescribeClusterEvent", ClusterName="lab", EventId="00000000-0000-4000-8000-000000000000"
    )

    assert refused[0] == "ResourceNotFound"


# what else can happen


def test_a_cluster_that_is_away_is_reported_so_that_clients_come_again(api, lab) -> None:
    lab.is_away = True
    body = json.dumps({"ClusterName": "lab"}).encode()

    status, answer = api.send(signed(ADA, "SageMaker.DescribeCluster", body), body)

    assert (status, answer["__type"]) == (503, "ServiceUnavailable")


def test_a_repair_that_cannot_be_recorded_fails_for_that_node(api, lab) -> None:
    class Forgetful(ShownCluster):
        def submit(self, node, verb, person, checks=()):
            self.is_away = True
            return super().submit(node, verb, person)

    forgetful = Forgetful("forgetful", NOW)
    node = forgetful.add("n", NOW)
    answer = Api([forgetful]).call(
        "BatchRebootClusterNodes", ClusterName="forgetful", NodeIds=[node.instance_id]
    )

    assert answer["Failed"][0]["ErrorCode"] == "InternalServerError"


def test_what_is_not_offered_is_named_with_what_is(api) -> None:
    code, message = api.refused("ListClusterExtensions")

    assert code == "UnknownOperationException"
    assert "ListClusterNodes" in message


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b"\xff", b"3", b"[" * 100_000, b'{"MaxResults": NaN}', b'{"x": -Infinity}'],
)
def test_a_body_that_is_no_request_is_refused(api, body) -> None:
    status, answer = api.send(signed(ADA, "SageMaker.ListClusters", body), body)

    assert (status, answer["__type"]) == (400, "SerializationException")


def test_a_target_of_another_service_is_refused(api) -> None:
    status, answer = api.send(signed(ADA, "DynamoDB_20120810.ListTables", b"{}"), b"{}")

    assert (status, answer["__type"]) == (400, "UnknownOperationException")


def test_every_kind_of_node_has_a_status_that_sagemaker_knows() -> None:
    known = MODEL.shape_for("ClusterInstanceStatus").enum

    assert {one.value for one in InstanceStatus} <= set(known)
