"""No request fails inside the API or the console, or keeps others from their answers."""

import http.client
import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from effort import examples
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from holdfast.api.operations import OPERATIONS

sys.path.insert(0, str(Path(__file__).parents[1] / "apps"))
from console_server import Site, Visitor, site
from served_api import Wire

FUZZ = settings(max_examples=examples(150), deadline=None, phases=[Phase.generate])
TIMEOUT_S = 90.0
NAME = "hers"
BODIES = [
    {"ClusterName": NAME, "NodeIds": ["i-0123456789abcdef0"]},
    {"ClusterName": NAME, "MaxResults": 10, "NextToken": "t", "SortBy": "NAME"},
    {
        "ClusterName": "new",
        "InstanceGroups": [
            {
                "InstanceGroupName": "g",
                "InstanceType": "ml.p5.48xlarge",
                "InstanceCount": 1,
                "ExecutionRole": "arn:aws:iam::123456789012:role/r",
                "LifeCycleConfig": {"SourceS3Uri": "s3://sagemaker-a", "OnCreate": "on_create.sh"},
            }
        ],
        "Tags": [{"Key": "k", "Value": "v"}],
    },
    {"ResourceArn": f"arn:aws:sagemaker:us-east-1:123456789012:cluster/{NAME}"},
    {
        "token": "t",
        "cluster": NAME,
        "node": "node-1",
        "fleet": NAME,
        "action": "reboot",
        "job": "j",
    },
]
TEXTS = [json.dumps(body) for body in BODIES]
HEADS = [
    b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /console/node?fleet=hers&node=node-1 HTTP/1.1\r\nHost: a\r\nCookie: holdfast=1\r\n\r\n",
    b"POST / HTTP/1.1\r\nHost: a\r\nX-Amz-Target: SageMaker.ListClusters\r\nContent-Length: 2\r\n"
    b"Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20261123/us-east-1/sagemaker/aws4_request,"
    b" SignedHeaders=host, Signature=00\r\nX-Amz-Date: 20261123T080000Z\r\n\r\n{}",
    b"POST /console/session HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nContent-Length: 13\r\n\r\n"
    b'{"token":"a"}',
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
]
TOKENS = [
    "", "\0", "\r\n", "\n", "\xff", "\u2028", "\\ud800", "null", "true", "-1", "1e999", "NaN", "[",
    "{", '"', "9" * 400, "a" * 9000, "[" * 200, "../", "%00", "%ff", "%2e%2e%2f",
    "Content-Length: -1\r\n", "Content-Length: 5\r\n", "Transfer-Encoding: x\r\n",
    "Upgrade: h2c\r\nConnection: Upgrade\r\n",
]  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn, seeds: list[str]) -> str:
    """Valid text with some parts removed, repeated or replaced."""
    text = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 1, 8, 40])))
        text = text[:start] + draw(st.sampled_from(TOKENS) | st.text(max_size=4)) + text[end:]
    return text


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("console")) as one:
        one.runs.add(NAME, nodes=(1, 2), ranks=(1,))
        yield one


@pytest.fixture(scope="module", autouse=True)
def visitor(console: Site) -> Visitor:
    """Logs in first: each login of the other tests counts as a wrong token of this address."""
    return console.visitor("ada")


def still_serves(console: Site) -> None:
    """Assert that it answers others, and that nothing has failed inside."""
    connection = http.client.HTTPConnection("127.0.0.1", console.served.port, timeout=TIMEOUT_S)
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    assert "Traceback" not in console.served.said()


def exchanged(console: Site, sent: bytes) -> bytes:
    """All that the server answers on one connection."""
    with socket.create_connection(("127.0.0.1", console.served.port), TIMEOUT_S) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


def test_a_head_and_a_body_of_any_bytes_are_answered_or_refused(console: Site) -> None:
    @FUZZ
    @given(mutated([head.decode("latin-1") for head in HEADS]))
    def answers(text: str) -> None:
        address = ("127.0.0.1", console.served.port)
        with socket.create_connection(address, TIMEOUT_S) as client:
            client.sendall(text.encode("latin-1", "replace"))
            client.shutdown(socket.SHUT_WR)
            received = client.makefile("rb").readline(200)
        assert received == b"" or received.split()[1] < b"500", received

    answers()
    still_serves(console)


@pytest.mark.parametrize("rest", [b"zz\r\n", b"2\r\n{}\r\nzz\r\n", b"9" * 99 + b"\r\n"])
def test_a_malformed_body_behind_a_valid_head_is_refused_without_a_traceback(
    console: Site, rest: bytes
) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    for _ in range(20):
        address = ("127.0.0.1", console.served.port)
        with socket.create_connection(address, TIMEOUT_S) as client:
            client.sendall(head + rest)
            received = client.makefile("rb").readline(200)
        assert received.split()[1] < b"500", received
    still_serves(console)


@pytest.mark.parametrize("order", [1, -1])
def test_a_request_with_two_lengths_ends_its_connection(console: Site, order: int) -> None:
    """What follows would be the request of another client, behind a proxy that uses the other."""
    lengths = [b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"][::order]
    head = b"POST / HTTP/1.1\r\nHost: a\r\n" + b"".join(lengths) + b"\r\n"

    answer = exchanged(console, head + b"0\r\n\r\n" + HEADS[0])

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer
    assert answer.count(b"HTTP/1.1 ") == 1


def test_a_websocket_is_no_way_around_the_limits(console: Site) -> None:
    head = HEADS[0].removesuffix(b"\r\n") + (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )

    assert exchanged(console, head).startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_signed_body_of_any_text_is_answered_or_refused(console: Site) -> None:
    wire = Wire(console.served)

    @FUZZ
    @given(st.sampled_from(sorted(OPERATIONS)), mutated(TEXTS))
    def answers(operation: str, text: str) -> None:
        reply = wire.call(operation, text.encode("utf-8", "surrogatepass"))
        assert reply.status < 500, reply

    answers()
    wire.close()
    still_serves(console)


POSTS = ("/console/session", "/console/jobs/cancel", "/console/repairs")
GETS = ("/console/node", "/console/job", "/console/log", "/console/log/file", "/console/goodput")
QUERIES = [
    "fleet=hers&node=node-1&name=hers",
    "fleet=hers&job=hers&rank=0&attempt=1&from=0&limit=9",
]


def test_a_person_who_is_logged_in_gets_an_answer_or_a_refusal(
    console: Site, visitor: Visitor
) -> None:
    @FUZZ
    @given(st.sampled_from(POSTS), mutated(TEXTS))
    def writes(path: str, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        assert visitor.call("POST", path, raw=raw).status < 500

    @FUZZ
    @given(st.sampled_from(GETS), mutated(QUERIES))
    def reads(path: str, text: str) -> None:
        query = quote(text, safe="&=%/", errors="surrogatepass")
        assert visitor.call("GET", f"{path}?{query}").status < 500

    writes()
    reads()
    still_serves(console)
