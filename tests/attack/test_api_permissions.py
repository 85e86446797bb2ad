"""A key of the API cannot do more than its role, its operations and its clusters permit."""

import base64
import json
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.audit import REFUSALS, AuditedRequest, AuditTrail
from holdfast.api.identity import REQUIRED_ROLE, AccessKey, Role
from holdfast.api.operations import OPERATIONS
from holdfast.api.policy_fields import POLICY_FIELDS
from holdfast.api.problems import AccessDenied
from holdfast.api.signature import SignedRequest
from holdfast.model.errors import BackendError
from tests.engines.fake_clusters import ShownCluster
from tests.ports.fakes import FakeClock

sys.path.insert(0, str(Path(__file__).parents[1] / "api"))
from api_calls import ADA, BOB, Api, AuditLines, signed
from created_calls import Lab, group

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OPERATOR = replace(ADA, access_key_id="AKIACCCCCCCCCCCCCCCC", role=Role.OPERATE, name="operator")
LIMITED = replace(
    ADA, access_key_id="AKIADDDDDDDDDDDDDDDD", name="limited", clusters=("mine", "lab")
)
REBOOTER = replace(
    OPERATOR,
    access_key_id="AKIAEEEEEEEEEEEEEEEE",
    name="rebooter",
    operations=("BatchRebootClusterNodes",),
)
KEYS = (ADA, BOB, OPERATOR, LIMITED, REBOOTER)


@pytest.fixture
def lab(tmp_path) -> Lab:
    lab = Lab(f"sqlite:///{tmp_path}/api.db", keys=KEYS)
    for name in ("mine", "theirs"):
        lab.create(name=name)
    lab.nodes.looked_after = True
    lab.settle()
    lab.audit.lines.clear()
    return lab


def policy_request(operation: str, lab: Lab, cluster: str) -> dict[str, object]:
    """A request for the compute quota or the scheduler configuration of a cluster."""
    arn = lab.arn(cluster)
    if operation.startswith("List"):
        return {"ClusterArn": arn}
    name = operation.removeprefix("Create").removeprefix("Describe").removeprefix("Update")
    name = name.removeprefix("Delete")
    content = {"SchedulerConfig": {}}
    if name == "ComputeQuota":
        amount = {"InstanceType": "ml.p5.48xlarge", "Count": 1}
        content = {
            "ComputeQuotaConfig": {"ComputeQuotaResources": [amount]},
            "ComputeQuotaTarget": {"TeamName": "red"},
        }
    request = {"Name": "a", "ClusterArn": arn, **content}
    if operation.startswith("Create"):
        return request
    is_quota = name == "ComputeQuota"
    there = [one.id for one in lab.policies.all() if (one.quota is not None) == is_quota]
    policy = there[0] if there else lab.call(f"Create{name}", **request)[f"{name}Id"]
    return {f"{name}Id": policy, **({"TargetVersion": 1} if "Update" in operation else {})}


def request_for(operation: str, lab: Lab, cluster: str) -> dict[str, object]:
    """A request that the owner of all clusters could make."""
    if operation in POLICY_FIELDS:
        return policy_request(operation, lab, cluster)
    node = lab.listed(cluster)[0]["InstanceId"]
    arn = lab.arn(cluster)
    event = lab.call("ListClusterEvents", ClusterName=cluster)["Events"][0]["EventId"]
    check = {"InstanceGroupName": "gpu", "DeepHealthChecks": ["InstanceStress"]}
    named = {
        "AddTags": {"ResourceArn": arn, "Tags": [{"Key": "a", "Value": "b"}]},
        "DeleteTags": {"ResourceArn": arn, "TagKeys": ["a"]},
        "ListTags": {"ResourceArn": arn},
        "BatchRebootClusterNodes": {"NodeIds": [node]},
        "BatchReplaceClusterNodes": {"NodeIds": [node]},
        "BatchDeleteClusterNodes": {"NodeIds": [node]},
        "BatchAddClusterNodes": {
            "NodesToAdd": [{"InstanceGroupName": "gpu", "IncrementTargetCountBy": 1}]
        },
        "StartClusterHealthCheck": {"DeepHealthCheckConfigurations": [check]},
        "DescribeClusterNode": {"NodeId": node},
        "DescribeClusterEvent": {"EventId": event},
        "UpdateCluster": {"InstanceGroups": [group(count=5)]},
        "CreateCluster": {"InstanceGroups": [group()]},
    }
    of_tags = operation in ("AddTags", "DeleteTags", "ListTags")
    return {**({} if of_tags else {"ClusterName": cluster}), **named.get(operation, {})}


def state(lab: Lab) -> object:
    clusters = [lab.records.load(name) for name in lab.records.names()]
    tags = [lab.records.tags(name) for name in lab.records.names()]
    return clusters, tags, list(lab.nodes.requested), lab.policies.all()


def test_the_table_of_roles_has_every_operation() -> None:
    assert OPERATIONS.keys() <= REQUIRED_ROLE.keys()


@pytest.mark.parametrize("key", [BOB, OPERATOR], ids=lambda key: key.role)
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_role_does_nothing_that_needs_a_higher_one(lab, key, operation) -> None:
    request = request_for(operation, lab, "mine")
    before = state(lab)

    answer = lab.call(operation, key, **request)

    is_denied = answer.get("Error", {}).get("Code") == "AccessDeniedException"
    assert is_denied == (not key.role.includes(REQUIRED_ROLE[operation]))
    if is_denied:
        assert state(lab) == before
        assert (lab.audit.lines[-1]["operation"], lab.audit.lines[-1]["outcome"]) == (
            operation,
            "refused",
        )


@pytest.mark.parametrize("operation", sorted(POLICY_FIELDS))
def test_policies_of_a_cluster_outside_the_list_can_neither_be_seen_nor_changed(
    lab, operation
) -> None:
    request = request_for(operation, lab, "theirs")
    before = state(lab)

    answer = lab.call(operation, LIMITED, **request)

    if operation.startswith("List"):
        assert [] in answer.values()
    else:
        assert answer["Error"]["Code"] == "ResourceNotFound"
    assert state(lab) == before


@pytest.mark.parametrize("operation", sorted(set(OPERATIONS) - {"ListClusters", *POLICY_FIELDS}))
@pytest.mark.parametrize("by", ["name", "arn"])
def test_a_cluster_outside_the_list_can_neither_be_seen_nor_changed(lab, operation, by) -> None:
    request = request_for(operation, lab, "theirs")
    if by == "arn" and operation != "CreateCluster":
        request = {name: value for name, value in request.items() if name != "ClusterName"}
        if "ResourceArn" not in request:
            request["ClusterName"] = lab.arn("theirs")
    if operation == "CreateCluster":
        request["ClusterName"] = "others"
    before = state(lab)

    code, message = lab.refused(operation, LIMITED, **request)

    assert code in ("ResourceNotFound", "ValidationException", "AccessDeniedException")
    assert "not found" in message or "no cluster" in message or "not authorized" in message
    assert state(lab) == before


def test_a_cluster_in_the_list_can_be_created_and_deleted(lab) -> None:
    lab.call("CreateCluster", LIMITED, ClusterName="lab", InstanceGroups=[group()])
    lab.call("DeleteCluster", LIMITED, ClusterName="mine")

    assert lab.status("lab") == "Creating"
    assert lab.status("mine") == "Deleting"


def test_nodes_of_another_cluster_cannot_be_named(lab) -> None:
    node = lab.listed("theirs")[0]
    answer = lab.call(
        "BatchRebootClusterNodes",
        LIMITED,
        ClusterName="mine",
        NodeIds=[node["InstanceId"]],
        NodeLogicalIds=[node["NodeLogicalId"]],
    )

    assert not answer["Successful"]
    assert not answer.get("SuccessfulNodeLogicalIds")
    assert lab.nodes.requested == []


@given(
    value=st.one_of(st.none(), st.text(max_size=5), st.floats(), st.integers(-5, 2**33)),
    name=st.sampled_from(["", "a", "mine", "theirs", "\x00", "~"]),
    order=st.sampled_from(["Ascending", "Descending"]),
    by=st.sampled_from(["NAME", "CREATION_TIME"]),
)
def test_no_paging_token_shows_a_cluster_outside_the_list(value, name, order, by) -> None:
    clusters = [
        ShownCluster(one, NOW + timedelta(hours=n))
        for n, one in enumerate(["alpha", "mine", "theirs", "zeta"])
    ]
    api = Api(clusters=clusters, keys=KEYS)
    token = base64.urlsafe_b64encode(json.dumps([value, name]).encode()).decode()

    answer = api.call("ListClusters", LIMITED, NextToken=token, SortOrder=order, SortBy=by)

    assert {one["ClusterName"] for one in answer.get("ClusterSummaries", ())} <= {"mine"}


def test_the_token_of_one_key_is_no_token_for_more_clusters() -> None:
    clusters = [ShownCluster(f"c{n}", NOW + timedelta(hours=n)) for n in range(6)]
    only = replace(LIMITED, clusters=("c0", "c4"))
    api = Api(clusters=clusters, keys=(ADA, only))
    page = api.call("ListClusters", ADA, MaxResults=2, SortBy="NAME", SortOrder="Ascending")

    answer = api.call(
        "ListClusters", only, NextToken=page["NextToken"], SortBy="NAME", SortOrder="Ascending"
    )

    assert [one["ClusterName"] for one in answer["ClusterSummaries"]] == ["c4"]


def test_a_key_with_operations_has_no_others(lab) -> None:
    request = request_for("BatchRebootClusterNodes", lab, "mine")

    assert lab.call("BatchRebootClusterNodes", REBOOTER, **request)["Successful"]
    for operation in sorted(set(OPERATIONS) - {"BatchRebootClusterNodes"}):
        code, _ = lab.refused(operation, REBOOTER, **request_for(operation, lab, "mine"))
        assert code == "AccessDeniedException"


@pytest.mark.parametrize("member", ["operations", "clusters"])
def test_an_empty_list_is_neither_all_nor_nothing(member) -> None:
    with pytest.raises(ValueError, match=f"{member} is an empty list, which permits nothing"):
        replace(ADA, **{member: ()})


@pytest.mark.parametrize(
    ("role", "operation", "said"),
    [
        (Role.VIEW, "DeleteCluster", "requires the role admin"),
        (Role.OPERATE, "DeleteCluster", "requires the role admin"),
        (Role.ADMIN, "DeleteClusters", "did you mean DeleteCluster"),
        (Role.ADMIN, "*", "known: "),
    ],
)
def test_operations_that_a_key_cannot_have_are_reported(role, operation, said) -> None:
    with pytest.raises(ValueError, match=said):
        replace(ADA, role=role, operations=(operation,))


def test_an_expired_key_does_nothing_from_that_moment_on() -> None:
    ends = datetime.now(UTC) + timedelta(minutes=2)
    key = replace(ADA, expires_at=ends)
    cluster = ShownCluster("lab", NOW)
    node = cluster.add("n1", NOW).instance_id
    api = Api(clusters=[cluster], keys=(key,))
    body = json.dumps({"ClusterName": "lab", "NodeIds": [node]}).encode()
    codes = []
    for at in (ends - timedelta(microseconds=1), ends):
        api.clock.time = at
        headers = signed(key, "SageMaker.BatchRebootClusterNodes", body)
        _, answer = api.answered(SignedRequest(headers=headers, body=body))
        codes.append(answer.get("__type"))

    assert codes == [None, "ExpiredTokenException"]
    assert len(cluster.requested) == 1


@pytest.mark.parametrize("target", ["ListClusters", ".ListClusters", "sagemaker.ListClusters", "."])
def test_the_target_names_the_service(target) -> None:
    api = Api()
    status, answer = api.send(signed(ADA, target, b"{}"), b"{}")

    assert (status, answer["__type"]) == (400, "UnknownOperationException")


def test_every_change_is_in_the_audit_log_with_who_where_and_what(lab) -> None:
    body = json.dumps({"ClusterName": "mine", "Nonce": 1}).encode()
    for key, address in ((BOB, "192.0.2.1"), (ADA, "192.0.2.2")):
        lab.clock.time = datetime.now(UTC)
        headers = signed(key, "SageMaker.DeleteCluster", body)
        lab.protocol.answer(SignedRequest(headers=headers, body=body, address=address))
    forged = {**signed(ADA, "SageMaker.DeleteCluster", body), "x-amz-date": "20200101T000000Z"}
    lab.protocol.answer(SignedRequest(headers=forged, body=body, address="192.0.2.3"))
    lab.call("ListClusters")

    refused, accepted, unknown = lab.audit.lines
    assert refused["person"] == BOB.access_key_id
    assert (refused["outcome"], refused["address"]) == ("refused", "192.0.2.1")
    assert (accepted["person"], accepted["outcome"]) == ("ada", "accepted")
    assert (accepted["operation"], accepted["via"]) == ("DeleteCluster", "api")
    assert accepted["request"] == {"ClusterName": "mine"}
    assert datetime.fromisoformat(accepted["at"]).tzinfo is not None
    assert "person" not in unknown
    assert (unknown["claimed_key"], unknown["address"]) == (ADA.access_key_id, "192.0.2.3")


def test_nothing_is_changed_that_cannot_be_recorded(lab) -> None:
    lab.audit.trouble = "no space is left for audit.jsonl"
    before = state(lab)

    code, message = lab.refused("DeleteCluster", ADA, ClusterName="mine")

    assert (code, message) == ("ServiceUnavailable", lab.audit.trouble)
    assert state(lab) == before
    assert lab.call("ListClusters")["ClusterSummaries"]


def test_refused_requests_do_not_push_changes_out_of_the_log() -> None:
    log, clock = AuditLines(), FakeClock(NOW)
    trail = AuditTrail(log, clock)

    def ask(*, is_refused: bool) -> None:
        one = AuditedRequest(via="api", address="192.0.2.1", operation="DeleteCluster")
        with trail.change(one):
            if is_refused:
                raise AccessDenied("no")

    for _ in range(REFUSALS + 30):
        with pytest.raises(AccessDenied):
            ask(is_refused=True)
    ask(is_refused=False)
    clock.time = NOW + timedelta(minutes=1)
    with pytest.raises(AccessDenied):
        ask(is_refused=True)

    assert len(log.lines) == REFUSALS + 2
    assert log.lines[-2]["outcome"] == "accepted"
    assert log.lines[-2]["omitted_refusals"] == 30
    assert "omitted_refusals" not in log.lines[-1]


@pytest.mark.parametrize(
    ("error", "outcome", "message"),
    [
        (BackendError("down"), "failed", "down"),
        (AccessDenied("no"), "refused", "no"),
        (KeyError("bug"), "failed", "internal error"),
    ],
)
def test_the_outcome_says_whether_a_change_may_have_happened(error, outcome, message) -> None:
    log = AuditLines()
    one = AuditedRequest(via="api", address="", operation="DeleteCluster")

    with pytest.raises(type(error)), AuditTrail(log, FakeClock(NOW)).change(one):
        raise error

    assert [(line["outcome"], line["message"]) for line in log.lines] == [(outcome, message)]


def test_a_long_request_is_recorded_by_its_digest() -> None:
    log = AuditLines()
    ids = [f"i-{n:017x}" for n in range(3000)]
    request = {"ClusterName": "lab", "NodeIds": ids}
    one = AuditedRequest(via="api", address="", operation="DeleteCluster", request=request)
    with AuditTrail(log, FakeClock(NOW)).change(one):
        pass

    [line] = log.lines
    assert line["request"] == {"ClusterName": "lab"}
    assert len(line["request_sha256"]) == 64
    assert len(json.dumps(line)) < 1000


def test_a_key_is_not_shown_by_its_text() -> None:
    assert isinstance(ADA, AccessKey)
    assert ADA.secret_access_key not in f"{ADA!r} {ADA}"
