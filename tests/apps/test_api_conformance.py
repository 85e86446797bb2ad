"""Every operation of a really running API, right and wrong, by requests made from botocore's model.

The requests with a mistake are made for whatever is offered; right ones need a cluster that fits,
and have a row in ``RIGHT``.
"""

import json
import uuid
from collections.abc import Iterator

import pytest
from botocore import xform_name
from botocore.exceptions import ClientError
from botocore.validate import ParamValidator
from conformance_lab import RIGHT, Lab, a_lab, has
from model_cases import MODEL, WRONG, example, mistakes

from holdfast.api.operations import OPERATIONS
from holdfast.api.policy_fields import POLICY_FIELDS

SILENT = ("DeleteTags", "ListTags")
"""Operations that may be answered with nothing."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    with a_lab(tmp_path_factory) as lab:
        yield lab


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_every_single_mistake_is_reported_as_aws_does_and_changes_nothing(lab, operation) -> None:
    before, wrong, ids = lab.accepted(), [], set()
    cases = list(mistakes(operation))
    for case in cases:
        reply = lab.wire.call(operation, json.dumps(case.request).encode())
        ids.add(uuid.UUID(reply.headers["x-amzn-requestid"]))
        found = (reply.status, reply.code, reply.headers["content-type"])
        if (
            found != (400, case.code, "application/x-amz-json-1.1")
            or case.member not in reply.message
        ):
            wrong.append((case.what, *found, reply.message))

    assert wrong == []
    assert len(ids) == len(cases)
    assert lab.accepted() == before


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_boto3_raises_what_is_reported(lab, operation) -> None:
    for case in mistakes(operation):
        if case.code != WRONG or "." in case.what or "null" in case.what:
            continue
        with pytest.raises(ClientError) as caught:
            lab.call(operation, lab.careless, **case.request)

        reported = caught.value.response
        assert reported["Error"]["Code"] == WRONG, case.what
        assert case.member in reported["Error"]["Message"]
        assert reported["ResponseMetadata"]["HTTPStatusCode"] == 400
        assert uuid.UUID(reported["ResponseMetadata"]["RequestId"])


def test_there_is_a_right_request_for_every_operation() -> None:
    assert RIGHT.keys() == OPERATIONS.keys() - POLICY_FIELDS.keys()


@pytest.mark.parametrize("operation", sorted(POLICY_FIELDS))
def test_policies_need_kubernetes(lab, operation) -> None:
    shape = MODEL.operation_model(operation).input_shape
    with pytest.raises(ClientError, match=r"need Kueue on Kubernetes; serve the cluster with"):
        lab.call(operation, **example(shape))


@pytest.mark.parametrize("operation", sorted(RIGHT))
def test_a_right_request_is_answered_as_the_model_says(lab, operation) -> None:
    answer = lab.call(operation, **RIGHT[operation](lab))

    reported = answer.pop("ResponseMetadata")
    assert (reported["HTTPStatusCode"], reported["RetryAttempts"]) == (200, 0)
    assert uuid.UUID(reported["RequestId"])
    shape = MODEL.operation_model(operation).output_shape
    report = ParamValidator().validate(answer, shape)
    assert not report.has_errors(), report.generate_report()
    assert any(answer.values()) or operation in SILENT


@pytest.mark.parametrize(
    "operation", sorted(one for one in RIGHT if has("ClusterName", one) and one != "CreateCluster")
)
def test_a_cluster_that_is_not_there_is_not_found(lab, operation) -> None:
    for name in ("nobody", "arn:aws:sagemaker:us-east-1:000000000000:cluster/0123456789ab"):
        with pytest.raises(lab.boto3.exceptions.ResourceNotFound) as caught:
            lab.call(operation, **{**RIGHT[operation](lab), "ClusterName": name})

        assert name in caught.value.response["Error"]["Message"]


@pytest.mark.parametrize("size", [1, 3, 7, 100])
@pytest.mark.parametrize("operation", sorted(one for one in RIGHT if has("NextToken", one)))
def test_every_page_is_there_to_the_end(lab, operation, size) -> None:
    most = MODEL.operation_model(operation).input_shape.members["MaxResults"]
    size = max(size, most.metadata["min"])
    request = RIGHT[operation](lab)
    whole = lab.call(operation, **request, MaxResults=100)
    [listed] = [name for name, value in whole.items() if isinstance(value, list)]
    paginator = lab.boto3.get_paginator(xform_name(operation))

    pages = list(paginator.paginate(**request, PaginationConfig={"PageSize": size}))

    assert [one for page in pages for one in page[listed]] == whole[listed]
    assert all(len(page[listed]) <= size for page in pages)
    assert len(pages) == max(1, -(-len(whole[listed]) // size))
    assert "NextToken" not in pages[-1]
