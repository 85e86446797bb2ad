"""Whatever is sent to a really running API, it answers in kind, goes on, and logs no bug."""

import base64
import contextlib
import gzip
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.model import ListShape, MapShape, Shape, StructureShape
from conformance_lab import CLUSTER, RIGHT, Lab, a_lab
from effort import examples
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from model_cases import EXAMPLES, MODEL
from served_api import Reply
from written_runs import machine

from holdfast.api.operations import OPERATIONS
from holdfast.api.problems import BODY_LIMIT
from holdfast.apps.api.connections import TIMEOUT_S

HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n"
SIGN_IN = (
    b"POST /console/session HTTP/1.1\r\nHost: a\r\nOrigin: http://a\r\nContent-Length: 100\r\n\r\n{"
)
SLACK_S = 20.0
SPARE = machine(7)
"""A node that no request of ``RIGHT`` names: a random request may delete it."""

NUMBERS = (
    st.integers() | st.sampled_from([0, -1, 2**31, 2**63, 10**400]) | st.floats(allow_nan=True)
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=12) | st.sampled_from(EXAMPLES),
    lambda items: st.lists(items, max_size=3) | st.dictionaries(st.text(max_size=8), items),
    max_leaves=6,
)


class Hanger:
    """Somebody who holds a connection without an end to what they say."""

    def __init__(self, port: int, begins: bytes, then: bytes) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.sendall(begins)
        self._then = then
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._go_on)
        self._thread.start()

    def _go_on(self) -> None:
        """Say a little from time to time, until the other end closes."""
        self._socket.settimeout(0.5)
        deadline = time.monotonic() + TIMEOUT_S + SLACK_S
        with contextlib.suppress(ConnectionError), self._socket:
            while time.monotonic() < deadline:
                with contextlib.suppress(TimeoutError):
                    if self._socket.recv(4096) == b"":
                        break
                if self._then:
                    self._socket.sendall(self._then)
            else:
                return
        self._is_over.set()

    def was_sent_away(self) -> bool:
        self._thread.join()
        return self._is_over.is_set()


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    with a_lab(tmp_path_factory) as lab:
        yield lab


@pytest.fixture(scope="module", autouse=True)
def hangers(lab) -> dict[str, Hanger]:
    """They hold on while all other tests of this file run."""
    said = {
        "nothing": (b"", b""),
        "half a head": (HEAD, b""),
        "a head a letter at a time": (HEAD + b"X-A: ", b"a"),
        "half a body": (HEAD + b"\r\n{", b""),
        "a body a letter at a time": (HEAD + b"\r\n{", b" "),
        "half a body to the console": (SIGN_IN, b""),
        "a body to the console a letter at a time": (SIGN_IN, b" "),
        "a second head": (b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\nPOST", b"T"),
    }
    return {what: Hanger(lab.served.port, *words) for what, words in said.items()}


@pytest.fixture(scope="module", autouse=True)
def log(lab, hangers) -> Iterator[None]:
    yield
    assert "Traceback" not in lab.served.said()
    assert "a bug" not in lab.served.said()


def shaped(shape: Shape) -> st.SearchStrategy[Any]:
    """Values that nearly fit: each may be anything instead."""
    return st.integers(0, 9).flatmap(lambda dice: ANYTHING if dice == 0 else fitting(shape))


def fitting(shape: Shape) -> st.SearchStrategy[Any]:
    rules = shape.metadata
    if isinstance(shape, StructureShape):
        required = {name: shaped(shape.members[name]) for name in shape.required_members}
        more = {
            name: st.deferred(lambda member=member: shaped(member))
            for name, member in shape.members.items()
            if name not in required
        }
        few = st.sets(st.sampled_from(sorted(more)), max_size=2) if more else st.just(set())
        return few.flatmap(
            lambda names: st.fixed_dictionaries({**required, **{one: more[one] for one in names}})
        )
    if isinstance(shape, ListShape):
        return st.lists(shaped(shape.member), min_size=min(rules.get("min", 0), 2), max_size=3)
    if isinstance(shape, MapShape):
        return st.dictionaries(st.text(max_size=5), shaped(shape.value), max_size=2)
    if shape.type_name == "string":
        known = (*shape.enum, *EXAMPLES, CLUSTER, SPARE, "nodes")
        return st.sampled_from(known) | st.text(max_size=10)
    if shape.type_name == "boolean":
        return st.booleans()
    if shape.type_name == "timestamp":
        return NUMBERS | st.datetimes().map(str)
    return st.integers(rules.get("min", 0) - 1, min(rules.get("max", 100) + 1, 2**40))


def is_answered(reply: Reply) -> bool:
    """Whether it is an answer of AWS's protocol that tells of no bug."""
    reported = json.loads(reply.body)
    return reply.status < 500 and (reply.status == 200) is ("__type" not in reported)


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_requests_that_nearly_fit_are_answered_and_refusals_change_nothing(lab, operation) -> None:
    shape = MODEL.operation_model(operation).input_shape

    @given(shaped(shape))
    @settings(max_examples=examples(40), suppress_health_check=list(HealthCheck))
    def holds(request) -> None:
        assume(operation != "CreateCluster" or not _is_named(request, CLUSTER))
        before = lab.accepted()
        reply = lab.wire.call(operation, json.dumps(request).encode())

        assert is_answered(reply), (request, reply)
        if reply.status != 200:
            assert lab.accepted() == before

    holds()


def _is_named(request: Any, name: str) -> bool:
    """Whether it would create a cluster that takes the name of the ended run of ``Lab``."""
    return isinstance(request, dict) and request.get("ClusterName") == name


@given(
    operation=st.sampled_from(sorted(OPERATIONS)),
    body=st.binary(max_size=200)
    | st.recursive(st.just(b"0"), lambda inner: inner.map(lambda one: b"[" + one + b"]"))
    | ANYTHING.map(lambda one: json.dumps(one).encode("utf-16")),
)
@settings(max_examples=examples(150))
def test_any_body_is_answered(lab, operation, body) -> None:
    reply = lab.wire.call(operation, body)

    assert is_answered(reply)
    assert reply.status == 400 or operation == "ListClusters"


@pytest.mark.parametrize("depth", [10, 400, 900, 960, 980, 990, 1000, 5000, 400_000])
@pytest.mark.parametrize("inside", ['{"ClusterName": %s}', '{"x": %s, "ClusterName": 3}', "%s"])
def test_no_depth_is_too_deep(lab, depth, inside) -> None:
    body = (inside % ("[" * depth + "]" * depth)).encode()
    nested = (inside % ('{"a":' * depth + "1" + "}" * depth)).encode()[:BODY_LIMIT]

    for one in (body, nested):
        reply = lab.wire.call("DescribeCluster", one)
        assert (reply.status, reply.code) in (
            (400, "SerializationException"),
            (400, "ValidationException"),
        )


def test_nor_is_any_where_the_interpreter_just_does_not_give_up(lab) -> None:
    for depth in range(850, 1000):
        body = f'{{"ClusterName": {"[" * depth}{"]" * depth}}}'.encode()

        assert lab.wire.call("DescribeCluster", body).code == "SerializationException", depth


@pytest.mark.parametrize("depth", [10, 900, 1100, 3000])
def test_no_token_is_too_deep(lab, depth) -> None:
    token = base64.urlsafe_b64encode(b"[" * depth).decode()
    reply = lab.wire.call(
        "ListClusterNodes", json.dumps({"ClusterName": CLUSTER, "NextToken": token}).encode()
    )

    assert (reply.status, reply.code) == (400, "ValidationException")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"MaxResults": NaN}', "SerializationException"),
        (b'{"MaxResults": 1e999}', "SerializationException"),
        (b'{"MaxResults": ' + b"9" * 5000 + b"}", "SerializationException"),
        (b'{"NameContains": "\\ud800"}', "ValidationException"),
        (b'{"NextToken": "\\ud800"}', "ValidationException"),
        (b'{"SortBy": "X", "SortBy": "NAME"}', ""),
        (gzip.compress(b"{}", mtime=0), "SerializationException"),
        (b"", ""),
    ],
)
def test_what_json_allows_and_what_it_does_not(lab, body, code) -> None:
    assert lab.wire.call("ListClusters", body).code == code


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "", "multipart/form-data"])
def test_the_type_of_the_content_does_not_matter(lab, kind) -> None:
    assert lab.wire.call("ListClusters", b"{}", Content_Type=kind).status == 200


@pytest.mark.parametrize(
    "target", ["", "ListClusters", "SageMaker", "SageMaker.", "SageMaker.x" * 500, "sagemaker.L"]
)
def test_a_target_that_there_is_not_is_reported(lab, target) -> None:
    reply = lab.wire.call("x", b"{}", X_Amz_Target=target)

    assert (reply.status, reply.code) == (400, "UnknownOperationException")


@given(st.binary(min_size=1, max_size=300) | st.binary(max_size=80).map(lambda one: HEAD + one))
@settings(max_examples=examples(60))
def test_bytes_that_are_no_http_are_sent_away(lab, garbage) -> None:
    with socket.create_connection(("127.0.0.1", lab.served.port), timeout=TIMEOUT_S) as one:
        one.sendall(garbage)
        one.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while one.recv(4096):
                pass


@pytest.mark.parametrize("is_chunked", [False, True])
def test_ten_megabytes_are_refused(lab, is_chunked) -> None:
    size = 10_000_000
    length = b"Transfer-Encoding: chunked" if is_chunked else b"Content-Length: %d" % size
    with socket.create_connection(("127.0.0.1", lab.served.port), timeout=30) as one:
        one.sendall(b"POST / HTTP/1.1\r\nHost: a\r\n" + length + b"\r\n\r\n")
        one.sendall((b"%x\r\n" % size if is_chunked else b"") + b"x" * size)
        one.sendall(b"\r\n0\r\n\r\n" if is_chunked else b"")
        answer = one.recv(65536)

    assert answer.startswith(b"HTTP/1.1 413 ")
    assert lab.wire.call("ListClusters", b"{}").status == 200


def test_right_requests_are_answered_as_before(lab) -> None:
    for operation, made in RIGHT.items():
        assert lab.wire.call(operation, json.dumps(made(lab)).encode()).status == 200


def test_nobody_holds_a_connection_for_ever(hangers) -> None:
    assert [what for what, one in hangers.items() if not one.was_sent_away()] == []
