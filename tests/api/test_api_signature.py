"""Who signed a request is known, and nothing of it can be changed or sent again."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from api_calls import ADA, BOB, REGION, Api, signed
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.signature import WINDOW
from tests.engines.fake_clusters import ShownCluster

LIST = "SageMaker.ListClusters"
NOW = datetime.now(UTC)


def sent(headers, body=b"{}", **changes) -> tuple[int, str]:
    status, answer = Api().send({**headers, **changes}, body)
    return status, answer.get("__type", "")


def test_what_botocore_signs_is_taken() -> None:
    assert sent(signed(ADA, LIST, b"{}")) == (200, "")


@given(body=st.binary(max_size=40), at=st.integers(0, 39), bit=st.integers(0, 7))
@settings(max_examples=examples(60))
def test_a_changed_body_is_refused(body, at, bit) -> None:
    good = b'{"NameContains": "' + b"a" * 30 + b'"}'
    changed = bytearray(good)
    changed[at % len(good)] ^= 1 << bit

    assert sent(signed(ADA, LIST, good), bytes(changed)) == (400, "InvalidSignatureException")
    assert sent(signed(ADA, LIST, good), body) == (400, "InvalidSignatureException")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("x-amz-target", "SageMaker.DescribeCluster"),
        ("host", "another.example"),
        pytest.param("x-amz-date", f"{NOW + timedelta(seconds=7):%Y%m%dT%H%M%SZ}", id="later"),
    ],
)
def test_a_changed_header_is_refused(header, value) -> None:
    assert sent(signed(ADA, LIST, b"{}"), **{header: value})[1] == "InvalidSignatureException"


def test_the_signature_of_another_key_is_refused() -> None:
    headers = signed(BOB, LIST, b"{}")
    stolen = headers["authorization"].replace(BOB.access_key_id, ADA.access_key_id)

    assert sent(headers, authorization=stolen) == (400, "InvalidSignatureException")


def test_an_unknown_key_is_refused() -> None:
    unknown = type(ADA)(access_key_id="AKIACCCCCCCCCCCCCCCC", secret_access_key="c" * 40)

    assert sent(signed(unknown, LIST, b"{}")) == (400, "UnrecognizedClientException")


@pytest.mark.parametrize("authorization", ["", "Basic YTpi", "Bearer x", "AWS4-HMAC-SHA1 x"])
def test_what_is_not_signed_is_refused(authorization) -> None:
    headers = signed(ADA, LIST, b"{}")

    refused = sent(headers, authorization=authorization)

    assert refused == (400, "MissingAuthenticationTokenException")


@pytest.mark.parametrize(
    "authorization",
    [
        "AWS4-HMAC-SHA256 ",
        "AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b, Signature=c",
        "AWS4-HMAC-SHA256 Credential=////, SignedHeaders=, Signature=",
        "AWS4-HMAC-SHA256 Credential=a/b/c/d/e/f, SignedHeaders=host, Signature=c",
    ],
)
def test_half_a_signature_is_refused(authorization) -> None:
    headers = signed(ADA, LIST, b"{}")

    refused = sent(headers, authorization=authorization)

    assert refused == (400, "IncompleteSignatureException")


@pytest.mark.parametrize("stamp", ["", "yesterday", "2026-01-01T00:00:00Z", "20261301T000000Z"])
def test_a_date_that_is_none_is_refused(stamp) -> None:
    headers = {**signed(ADA, LIST, b"{}"), "x-amz-date": stamp}

    assert sent(headers) == (400, "IncompleteSignatureException")


@pytest.mark.parametrize("text", ["é", "0" * 64, "0" * 63, "\x00"])
def test_a_signature_that_is_none_is_refused(text) -> None:
    headers = signed(ADA, LIST, b"{}")
    right = headers["authorization"].rpartition("Signature=")[2]
    wrong = headers["authorization"].replace(right, text)

    assert sent(headers, authorization=wrong) == (400, "InvalidSignatureException")


def test_a_request_for_another_region_is_refused_and_shown_the_right_one() -> None:
    api = Api()
    _, answer = api.send(signed(ADA, LIST, b"{}", region="us-west-2"), b"{}")

    assert answer["__type"] == "InvalidSignatureException"
    assert REGION in answer["message"]


@pytest.mark.parametrize("headers_left_out", ["x-amz-target", "host", "x-amz-date"])
def test_the_headers_that_matter_must_be_signed(headers_left_out) -> None:
    headers = signed(ADA, LIST, b"{}")
    fields = headers["authorization"]
    names = fields.split("SignedHeaders=")[1].split(",")[0]
    fewer = ";".join(name for name in names.split(";") if name != headers_left_out)

    refused = sent(headers, authorization=fields.replace(names, fewer))

    assert refused == (400, "InvalidSignatureException")


@pytest.mark.parametrize(
    ("age", "is_good"),
    [(WINDOW - timedelta(seconds=2), True), (WINDOW + timedelta(seconds=2), False)],
)
@pytest.mark.parametrize("direction", [1, -1])
def test_a_signature_is_good_for_five_minutes(age, is_good, direction) -> None:
    api = Api()
    headers = signed(ADA, LIST, b"{}")
    api.clock.time = datetime.now(UTC) + age * direction

    status, _ = api.send(headers, b"{}")

    assert (status == 200) is is_good


def test_a_request_that_changes_something_is_not_taken_twice() -> None:
    cluster = ShownCluster("lab", NOW)
    node = cluster.add("n1", NOW)
    api = Api([cluster])
    body = json.dumps({"ClusterName": "lab", "NodeIds": [node.instance_id]}).encode()
    headers = signed(ADA, "SageMaker.BatchRebootClusterNodes", body)

    first, _ = api.send(headers, body)
    second, answer = api.send(headers, body)

    assert (first, second) == (200, 400)
    assert "already used" in answer["message"]
    assert len(cluster.requested) == 1


def test_a_request_that_only_reads_may_be_sent_again() -> None:
    api = Api()
    headers = signed(ADA, LIST, b"{}")

    assert [api.send(headers, b"{}")[0] for _ in range(2)] == [200, 200]
