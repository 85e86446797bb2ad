"""The AWS command line itself against a really running API, for every operation."""

import json
import subprocess
from collections.abc import Iterator

import pytest
from aws_command_line import AWS, REFUSED, AwsCommandLine
from botocore import xform_name
from conformance_lab import CLUSTER, NODES, RIGHT, Lab, a_lab
from model_cases import MODEL, UNREADABLE, WRONG

from holdfast.api.operations import OPERATIONS


@pytest.fixture(scope="module")
def lab(tmp_path_factory) -> Iterator[Lab]:
    with a_lab(tmp_path_factory) as lab:
        yield lab


@pytest.fixture(scope="module")
def aws(lab) -> Iterator[AwsCommandLine]:
    aws = AwsCommandLine(lab.served)
    yield aws
    aws.close()


def command(operation: str) -> str:
    return xform_name(operation, "-")


@pytest.mark.parametrize("operation", sorted(RIGHT))
def test_a_right_request_is_answered(lab, aws, operation) -> None:
    ended = aws(command(operation), "--cli-input-json", json.dumps(RIGHT[operation](lab)))

    assert (ended.code, ended.err) == (0, "")
    assert set(json.loads(ended.out or "{}")) <= set(
        MODEL.operation_model(operation).output_shape.members
    )


@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_a_skeleton_with_nothing_filled_in_is_refused_by_its_mistakes(lab, aws, operation) -> None:
    made = aws(command(operation), "--generate-cli-skeleton")
    shape = MODEL.operation_model(operation).input_shape
    skeleton = json.loads(made.out)
    assert skeleton.keys() <= shape.members.keys()  # its own model may be older

    assert lab.wire.call(operation, made.out.encode()).code == WRONG


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (("list-cluster-nodes", "--cluster-name=-bad-"), WRONG),
        (("list-cluster-nodes", "--cluster-name", CLUSTER, "--max-results", "101"), WRONG),
        (("list-clusters", "--creation-time-after", "2026-01-01", "--sort-by", "AGE"), WRONG),
        (("describe-cluster-node", "--cluster-name", CLUSTER, "--node-id", "node-1"), WRONG),
        (("list-cluster-nodes", "--cluster-name", CLUSTER, "--next-token", "x"), WRONG),
        (("describe-cluster", "--cluster-name", "nobody"), "ResourceNotFound"),
        (("list-endpoints",), "UnknownOperationException"),
    ],
)
def test_what_is_wrong_is_reported_with_its_code(aws, argv, code) -> None:
    ended = aws(*argv, "--no-paginate")

    assert (ended.code, ended.out) == (REFUSED, "")
    assert f"An error occurred ({code}) when calling" in ended.err
    assert UNREADABLE not in ended.err


@pytest.mark.parametrize("size", ["1", "3"])
def test_all_pages_are_fetched(aws, size) -> None:
    argv = ("list-cluster-nodes", "--cluster-name", CLUSTER, "--page-size", size)

    listed = json.loads(aws(*argv).out)["ClusterNodeSummaries"]
    first = json.loads(aws(*argv, "--max-items", "2").out)
    rest = json.loads(aws(*argv, "--starting-token", first["NextToken"]).out)

    assert len({one["InstanceId"] for one in listed}) == len(listed) == len(NODES)
    assert first["ClusterNodeSummaries"] + rest["ClusterNodeSummaries"] == listed


def test_the_loop_of_the_guides_ends_when_the_cluster_is_in_service(aws) -> None:
    loop = (
        'until [ "$("$0" sagemaker describe-cluster --cluster-name "$1" '
        '--query ClusterStatus --output text)" = InService ]; do sleep 0.1; done; echo done'
    )

    ended = subprocess.run(
        ["sh", "-c", loop, str(AWS), CLUSTER],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=aws.environment,
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "done\n", "")
