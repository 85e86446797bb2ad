"""STS, EKS and the tokens of ``aws eks get-token``, signed by botocore, without a network."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from api_calls import ADA, BOB, PLACE, REGION
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from holdfast.api.eks import EksProtocol
from holdfast.api.identity import AccessKey, Keyring, Role
from holdfast.api.kubernetes_cluster import KubernetesCluster
from holdfast.api.kubernetes_tokens import LIFETIME, TokenReviews
from holdfast.api.problems import NotReadable
from holdfast.api.signature import SignedRequest
from holdfast.api.sts import StsProtocol
from tests.ports.fakes import FakeClock

CALL = "Action=GetCallerIdentity&Version=2011-06-15"
ELSEWHERE = AccessKey(
    access_key_id="AKIACCCCCCCCCCCCCCCC", secret_access_key="c" * 40, clusters=("other",)
)
WITHOUT = AccessKey(
    access_key_id="AKIADDDDDDDDDDDDDDDD", secret_access_key="d" * 40, operations=("ListClusters",)
)
EXPIRED = AccessKey(
    access_key_id="AKIAEEEEEEEEEEEEEEEE",
    secret_access_key="e" * 40,
    role=Role.ADMIN,
    expires_at=datetime(2026, 1, 1, tzinfo=UTC),
)
KEYS = Keyring((ADA, BOB, ELSEWHERE, WITHOUT, EXPIRED))
CLUSTER = KubernetesCluster(
    name="lab",
    endpoint="https://192.0.2.1:6443",
    certificate_authority="PEM",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)
ADA_ARN = "arn:aws:iam::123456789012:user/ada"


def clock(after: timedelta = timedelta(0)) -> FakeClock:
    return FakeClock(datetime.now(UTC) + after)


def token(
    key: AccessKey = ADA,
    *,
    cluster: str = "lab",
    query: str = CALL,
    service: str = "sts",
    region: str = REGION,
    host: str = "http://api.example:8470",
    session: str | None = None,
) -> str:
    """A token as ``aws eks get-token`` makes it."""
    request = AWSRequest("GET", f"{host}/?{query}", headers={"x-k8s-aws-id": cluster})
    credentials = Credentials(key.access_key_id, key.secret_access_key, session)
    SigV4QueryAuth(credentials, service, region, expires=60).add_auth(request)
    return encoded(request.url)


def encoded(url: str) -> str:
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def reviewed(text: str, *, after: timedelta = timedelta(0)) -> dict[str, Any]:
    reviews = TokenReviews(KEYS, PLACE, CLUSTER, clock(after))
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    answer = reviews.review(json.dumps({**body, "spec": {"token": text}}).encode())
    assert {name: answer[name] for name in body} == body
    return answer["status"]


def signed(
    service: str, path: str = "/", key: AccessKey = ADA, body: bytes = b"", region: str = REGION
) -> SignedRequest:
    method = "POST" if body else "GET"
    request = AWSRequest(method, f"http://api.example{path}", data=body)
    SigV4Auth(Credentials(key.access_key_id, key.secret_access_key), service, region).add_auth(
        request
    )
    headers = {name.lower(): str(value) for name, value in request.headers.items()}
    url = urlsplit(request.url)
    return SignedRequest(
        headers={"host": "api.example", **headers},
        body=body,
        method=method,
        path=url.path,
        query=url.query,
    )


def eks(path: str, key: AccessKey = ADA, cluster: KubernetesCluster | None = CLUSTER):
    answer = EksProtocol(KEYS, PLACE, cluster, clock()).answer(signed("eks", path, key))
    return answer.status, answer.headers.get("x-amzn-errortype", ""), json.loads(answer.body)


def sts(key: AccessKey = ADA, body: str = CALL, service: str = "sts") -> tuple[int, str]:
    request = signed(service, "/", key, body.encode())
    answer = StsProtocol(KEYS, PLACE, clock()).answer(request)
    return answer.status, answer.body.decode()


@pytest.mark.parametrize("host", ["http://api.example:8470", "http://h:80", "https://h:443"])
def test_a_token_names_its_owner_and_the_groups_of_the_role(host: str) -> None:
    assert reviewed(token(host=host)) == {
        "authenticated": True,
        "user": {
            "username": ADA_ARN,
            "uid": ADA.access_key_id,
            "groups": ["holdfast.dev:view", "holdfast.dev:operate", "holdfast.dev:admin"],
        },
    }
    assert reviewed(token(BOB))["user"]["groups"] == ["holdfast.dev:view"]


FORGED = AccessKey(access_key_id=ADA.access_key_id, secret_access_key="f" * 40)
UNKNOWN = AccessKey(access_key_id="AKIAFFFFFFFFFFFFFFFF", secret_access_key="f" * 40)
REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "forged": (lambda: token(FORGED), "does not match"),
    "unknown key": (lambda: token(UNKNOWN), "unknown key"),
    "expired key": (lambda: token(EXPIRED), "expired"),
    "another cluster": (lambda: token(cluster="other"), "does not match"),
    "another service": (lambda: token(service="sagemaker"), "scope"),
    "another region": (lambda: token(region="eu-west-1"), "scope"),
    "another action": (lambda: token(query=CALL.replace("Get", "Set")), "is not one of"),
    "a session": (lambda: token(session="s"), "is not one of"),
    "a further parameter": (lambda: token(query=f"{CALL}&a=1"), "is not one of"),
    "key of other clusters": (lambda: token(ELSEWHERE), "do not include it"),
    "key of other operations": (lambda: token(WITHOUT), "eks:AccessKubernetesApi"),
    "no prefix": (lambda: token().removeprefix("k8s-aws-v1."), "is not one of"),
    "a service account": (lambda: "eyJhbGciOiJSUzI1NiJ9.e30.c2ln", "is not one of"),
    "nothing": (lambda: "", "is not one of"),
    "no text": (lambda: "k8s-aws-v1.\u00e9", "is not one of"),
}
"""Tokens, made when they are used: each is valid for minutes."""


@pytest.mark.parametrize("name", REFUSED)
def test_another_token_is_rejected(name: str) -> None:
    token_of, why = REFUSED[name]
    status = reviewed(token_of())

    assert status["authenticated"] is False
    assert why in status["error"]
    assert "user" not in status


def test_a_token_is_valid_for_a_quarter_of_an_hour() -> None:
    text = token()

    assert reviewed(text, after=LIFETIME - timedelta(seconds=30))["authenticated"]
    assert not reviewed(text, after=LIFETIME + timedelta(seconds=1))["authenticated"]
    assert not reviewed(text, after=-timedelta(minutes=6))["authenticated"]


@pytest.mark.parametrize("part", ["Expires=60", "SignedHeaders=host", "Date=2", "Action=Get"])
def test_a_changed_token_is_rejected(part: str) -> None:
    url = base64.urlsafe_b64decode(token().removeprefix("k8s-aws-v1.") + "==").decode()
    changed = url.replace(part, f"{part}9")

    assert changed != url
    assert reviewed(encoded(changed))["authenticated"] is False


def test_a_repeated_parameter_is_rejected() -> None:
    url = base64.urlsafe_b64decode(token().removeprefix("k8s-aws-v1.") + "==").decode()

    assert "is not one of" in reviewed(encoded(f"{url}&Action=GetCallerIdentity"))["error"]


@given(st.text())
def test_no_token_raises(text: str) -> None:
    assert reviewed(text)["authenticated"] is False
    assert reviewed(f"k8s-aws-v1.{text}")["authenticated"] is False
    assert reviewed(encoded(f"http://h/?{quote(text)}"))["authenticated"] is False


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"apiVersion": "v1"}', b"[" * 5000, b"\xff", b'"a"']
)
def test_what_is_no_token_review_is_refused(body: bytes) -> None:
    with pytest.raises(NotReadable, match="must be a TokenReview"):
        TokenReviews(KEYS, PLACE, CLUSTER, clock()).review(body)


def test_sts_reports_who_the_caller_is_and_needs_no_permission() -> None:
    status, text = sts()
    assert (status, f"<Arn>{ADA_ARN}</Arn>" in text) == (200, True)
    assert sts(WITHOUT)[0] == 200


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (sts(FORGED), "SignatureDoesNotMatch"),
        (sts(UNKNOWN), "InvalidClientTokenId"),
        (sts(EXPIRED), "ExpiredToken"),
        (sts(service="sagemaker"), "SignatureDoesNotMatch"),
        (sts(body="Action=AssumeRole"), "InvalidAction"),
        (sts(body="Action=<a>"), "InvalidAction"),
        (sts(body="&".join(f"a{number}=1" for number in range(99))), "InvalidAction"),
    ],
)
def test_sts_refuses_with_its_own_codes(refused: tuple[int, str], code: str) -> None:
    status, text = refused
    assert status == 403
    assert f"<Code>{code}</Code>" in text
    assert "<a>" not in text


def test_eks_shows_the_cluster_to_keys_that_may_use_it() -> None:
    status, _, shown = eks("/clusters/lab")
    assert (status, shown["cluster"]["endpoint"]) == (200, CLUSTER.endpoint)
    assert shown["cluster"]["arn"] == f"arn:aws:eks:{REGION}:123456789012:cluster/lab"
    assert base64.b64decode(shown["cluster"]["certificateAuthority"]["data"]) == b"PEM"
    assert eks("/clusters?maxResults=10") == (200, "", {"clusters": ["lab"]})
    assert eks("/clusters", ELSEWHERE) == (200, "", {"clusters": []})
    assert eks("/clusters", cluster=None) == (200, "", {"clusters": []})
    for path, key in (("/clusters/other", ADA), ("/clusters/lab", ELSEWHERE)):
        assert eks(path, key)[:2] == (404, "ResourceNotFoundException")
    assert eks("/clusters/lab", WITHOUT)[:2] == (403, "AccessDeniedException")
    assert eks("/clusters/lab/nodegroups")[:2] == (400, "UnknownOperationException")


def test_eks_shows_access_entries_of_oneself_and_to_an_admin_all() -> None:
    bob = f"arn:aws:iam::123456789012:user/{BOB.access_key_id}"
    entries = "/clusters/lab/access-entries"

    status, _, shown = eks(f"{entries}/{quote(bob, safe='')}", BOB)
    assert (status, shown["accessEntry"]["kubernetesGroups"]) == (200, ["holdfast.dev:view"])
    assert eks(f"{entries}/{quote(bob, safe='')}")[2] == shown
    assert eks(f"{entries}/{quote(ADA_ARN, safe='')}", BOB)[:2] == (403, "AccessDeniedException")
    assert eks(f"{entries}/nobody")[:2] == (404, "ResourceNotFoundException")
    assert eks(entries, BOB)[2] == {"accessEntries": [bob]}
    assert {ADA_ARN, bob} <= {*eks(entries)[2]["accessEntries"]}


def test_names_of_different_people_have_different_arns() -> None:
    names = ["a b", "a%20b", "a+b", "a/b", "a:b", "ä"]
    assert len({PLACE.user_arn(name) for name in names}) == len(names)
