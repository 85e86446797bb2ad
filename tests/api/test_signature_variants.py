"""Other ways to sign than that of the AWS command line, each with the answer that AWS gives."""

from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest
from api_calls import ADA, REGION, Api
from botocore.auth import S3SigV4Auth, SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.api.signature import WINDOW, SignedRequest

TARGET = {"X-Amz-Target": "SageMaker.ListClusters"}


class Unsigned(SigV4Auth):
    """Leaves the body out."""

    said = "UNSIGNED-PAYLOAD"

    def payload(self, request):
        request.headers["X-Amz-Content-SHA256"] = self.said
        return self.said


class Chunked(Unsigned):
    said = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"


def made(
    auth=SigV4Auth,
    *,
    service: str = "sagemaker",
    session: str | None = None,
    url: str = "http://holdfast.example/",
    headers: dict[str, str] = TARGET,
) -> SignedRequest:
    """A request to list the clusters, as a signer of botocore's makes it."""
    request = AWSRequest(method="POST", url=url, data=b"{}", headers=headers)
    credentials = Credentials(ADA.access_key_id, ADA.secret_access_key, session)
    auth(credentials, service, REGION).add_auth(request)
    found = {name.lower(): str(value) for name, value in request.headers.items()}
    query = urlsplit(request.url).query
    return SignedRequest(headers={"host": "holdfast.example", **found}, body=b"{}", query=query)


def changed(request: SignedRequest, **headers: str) -> SignedRequest:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return SignedRequest(
        headers={**request.headers, **named}, body=request.body, query=request.query
    )


def answered(request: SignedRequest, *, later: timedelta = timedelta(0)) -> tuple[str, str]:
    """Code and message of the refusal; both empty if there is none."""
    api = Api()
    api.clock.time = datetime.now(UTC) + later
    _, answer = api.answered(request)
    return answer.get("__type", ""), answer.get("message", "")


def test_a_signature_in_the_query_counts_as_none() -> None:
    presigned = made(SigV4QueryAuth)

    assert "X-Amz-Signature" in presigned.query
    assert answered(presigned) == (
        "MissingAuthenticationTokenException",
        "Missing Authentication Token",
    )


def test_keys_of_a_session_are_unknown_and_the_way_out_is_reported() -> None:
    code, message = answered(made(session="FwoGZXIvYXdzE"))

    assert code == "UnrecognizedClientException"
    assert message.startswith("The security token included in the request is invalid.")
    assert "unset AWS_SESSION_TOKEN" in message


@pytest.mark.parametrize("auth", [Unsigned, Chunked])
def test_a_body_that_is_not_signed_is_refused(auth) -> None:
    assert answered(made(auth))[0] == "InvalidSignatureException"


def test_the_sum_of_the_body_may_be_a_header_as_well() -> None:
    request = made(S3SigV4Auth)

    assert "x-amz-content-sha256" in request.headers
    assert answered(request)[0] == ""


@pytest.mark.parametrize("service", ["ec2", "SageMaker", "sagemaker-runtime"])
def test_a_signature_for_another_service_is_refused_and_shown_the_right_one(service) -> None:
    code, message = answered(made(service=service))

    assert code == "InvalidSignatureException"
    assert f"/{REGION}/sagemaker/aws4_request" in message


def test_a_query_is_signed_like_all_else() -> None:
    request = made(url="http://holdfast.example/?b=2&a=1")
    without = SignedRequest(headers=request.headers, body=request.body)
    another = SignedRequest(headers=request.headers, body=request.body, query="a=1&b=3")

    assert answered(request)[0] == ""
    assert {answered(one)[0] for one in (without, another)} == {"InvalidSignatureException"}
    added = SignedRequest(headers=made().headers, body=b"{}", query="a=1")
    assert answered(added)[0] == "InvalidSignatureException"


@pytest.mark.parametrize("scheme", ["AWS4-ECDSA-P256-SHA256", "aws4-hmac-sha256", "AWS"])
def test_other_schemes_count_as_no_signature(scheme) -> None:
    request = made()
    authorization = request.headers["authorization"].replace("AWS4-HMAC-SHA256", scheme)

    refused = answered(changed(request, authorization=authorization))

    assert refused[0] == "MissingAuthenticationTokenException"


def test_the_parts_of_a_signature_may_come_in_any_order_and_without_blanks() -> None:
    request = made()
    scheme, _, parts = request.headers["authorization"].partition(" ")
    turned = ",".join(reversed(parts.split(", ")))

    assert answered(changed(request, authorization=f"{scheme} {turned}"))[0] == ""


def test_headers_of_aws_that_somebody_adds_are_refused() -> None:
    code, message = answered(changed(made(), x_amz_meta="x"))

    assert (code, "x-amz-meta" in message) == ("InvalidSignatureException", True)


def test_other_headers_may_be_added_on_the_way() -> None:
    added = changed(made(), x_forwarded_for="10.0.0.1", x_amzn_trace_id="Root=1", via="1.1 proxy")

    assert answered(added)[0] == ""


def test_what_is_too_old_or_not_yet_good_says_so_with_the_times() -> None:
    request = made()
    stamp = request.headers["x-amz-date"]

    code, expired = answered(request, later=WINDOW + timedelta(seconds=2))
    same, early = answered(request, later=-WINDOW - timedelta(seconds=2))

    assert code == same == "InvalidSignatureException"
    assert expired.startswith(f"Signature expired: {stamp} is now earlier than ")
    assert expired.endswith("- 5 min.)")
    assert early.startswith(f"Signature not yet current: {stamp} is still later than ")
    assert early.endswith("+ 5 min.)")


@given(
    header=st.sampled_from(["authorization", "x-amz-date", "x-amz-target", "host"]),
    text=st.text(st.characters(max_codepoint=255), max_size=60),
)
@settings(max_examples=examples(100))
def test_no_header_breaks_the_judge(header, text) -> None:
    assert answered(changed(made(), **{header: text}))[0].endswith("Exception")
