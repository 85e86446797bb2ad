"""A door before moto's server that can answer in AWS's worse moods, and notes every call."""

import contextlib
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import boto3
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

REGION = "us-west-2"
HANG_S = 5.0

Answer = tuple[int, str]


def refused(code: str, message: str = "no", status: int = 400) -> Answer:
    """An error of EC2."""
    error = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, f"<Response><Errors>{error}</Errors><RequestID>r</RequestID></Response>"


def error_response(code: str, message: str = "no", status: int = 400) -> Answer:
    """An error of Auto Scaling."""
    error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
    return status, f"<ErrorResponse>{error}<RequestId>r</RequestId></ErrorResponse>"


def activities(*members: tuple[str, str]) -> Answer:
    """Auto Scaling's activities, newest first, each with its status code and message."""
    listed = "".join(
        f"<member><ActivityId>a</ActivityId><AutoScalingGroupName>g</AutoScalingGroupName>"
        f"<Cause>c</Cause><StartTime>2026-01-01T00:00:00Z</StartTime>"
        f"<StatusCode>{code}</StatusCode><StatusMessage>{message}</StatusMessage></member>"
        for code, message in members
    )
    result = f"<DescribeScalingActivitiesResult><Activities>{listed}</Activities>"
    return 200, (
        f"<DescribeScalingActivitiesResponse>{result}</DescribeScalingActivitiesResult>"
        "</DescribeScalingActivitiesResponse>"
    )


@dataclass
class Front:
    """Passes calls on, unless it was told what to answer."""

    moto: str
    made: list[str] = field(default_factory=list)
    """The names of the operations that were called."""

    changes: list[dict[str, str]] = field(default_factory=list)
    """The parameters of the calls that change something, the name among them."""

    moods: dict[str, deque[Answer | None]] = field(default_factory=dict)
    always: dict[str, Answer] = field(default_factory=dict)
    url: str = ""
    batch: Callable[[str, dict[str, Any]], dict[str, Any]] | None = None
    """Answers SageMaker's operations on nodes."""

    def say(self, operation: str, answer: Answer, times: int = 1) -> None:
        """Answer the next calls so."""
        self.moods.setdefault(operation, deque()).extend([answer] * times)

    def hang(self, operation: str, times: int = 1) -> None:
        """Leave the next calls without an answer for a while."""
        self.moods.setdefault(operation, deque()).extend([None] * times)

    def forget(self) -> None:
        """Be as at the beginning."""
        for kept in (self.made, self.changes, self.moods, self.always):
            kept.clear()

    def answer(self, operation: str, handler: "Handler", body: bytes) -> Answer:
        """What to say to a call."""
        self.made.append(operation)
        if not operation.startswith("Describe"):
            self.changes.append(dict(urllib.parse.parse_qsl(body.decode())))
        waiting = self.moods.get(operation)
        if waiting:
            mood = waiting.popleft()
            if mood is not None:
                return mood
            time.sleep(HANG_S)
        if operation in self.always:
            return self.always[operation]
        if operation.startswith("Batch") or operation == "DescribeClusterNode":
            return 200, json.dumps(self._batch(operation, json.loads(body)))
        return self._passed_on(handler, body)

    def _batch(self, operation: str, arguments: dict[str, Any]) -> dict[str, Any]:
        model = ServiceModel(Loader().load_service_model("sagemaker", "service-2"))
        shapes = model.operation_model(operation)
        assert not ParamValidator().validate(arguments, shapes.input_shape).has_errors()
        assert self.batch is not None
        reported = self.batch(operation, arguments)
        assert not ParamValidator().validate(reported, shapes.output_shape).has_errors()
        return reported

    def _passed_on(self, handler: "Handler", body: bytes) -> Answer:
        headers = {key: value for key, value in handler.headers.items() if key != "Host"}
        request = urllib.request.Request(self.moto + handler.path, body, headers)  # noqa: S310
        try:
            with urllib.request.urlopen(request) as answer:  # noqa: S310
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


class Handler(BaseHTTPRequestHandler):
    front: Front
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are written apart, which cost 40 ms a call

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        target = self.headers.get("X-Amz-Target")
        form = urllib.parse.parse_qs(body.decode())
        operation = target.partition(".")[2] if target else form["Action"][0]
        status, text = self.front.answer(operation, self, body)
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass

    def handle(self) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # who hung has gone
            super().handle()


class Door:
    """Serves a front until it is closed."""

    def __init__(self, front: Front) -> None:
        handler = type("FrontHandler", (Handler,), {"front": front})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        front.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Cloud:
    """An Auto Scaling group of some instances, and others, as moto plays them."""

    def __init__(self, moto: str) -> None:
        self.ec2 = boto3.client("ec2", region_name=REGION, endpoint_url=moto)
        self.autoscaling = boto3.client("autoscaling", region_name=REGION, endpoint_url=moto)
        self.image = self.ec2.describe_images()["Images"][0]["ImageId"]
        self.autoscaling.create_launch_configuration(
            LaunchConfigurationName="l", ImageId=self.image, InstanceType="t3.micro"
        )
        self.name = ""
        self._groups = 0

    def group(self, size: int = 1) -> list[str]:
        """Make another group, the one of this test; returns the ids of its instances."""
        self._groups += 1
        self.name = f"g{self._groups}"
        self.autoscaling.create_auto_scaling_group(
            AutoScalingGroupName=self.name,
            LaunchConfigurationName="l",
            MinSize=size,
            MaxSize=size + 1,
            AvailabilityZones=[f"{REGION}a"],
        )
        return sorted(self.members())

    def members(self) -> dict[str, str]:
        """The instances of the group, each with its health."""
        answer = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[self.name])
        (group,) = answer["AutoScalingGroups"]
        return {one["InstanceId"]: one["HealthStatus"] for one in group["Instances"]}

    def instance(self) -> str:
        """Launch an instance that belongs to no group."""
        answer = self.ec2.run_instances(
            ImageId=self.image, MinCount=1, MaxCount=1, InstanceType="t3.micro"
        )
        return str(answer["Instances"][0]["InstanceId"])

    def addresses(self, instance: str) -> tuple[str, ...]:
        """What a kubelet on an instance reports."""
        answer = self.ec2.describe_instances(InstanceIds=[instance])
        found = answer["Reservations"][0]["Instances"][0]
        return found["PrivateIpAddress"], found["PrivateDnsName"]

    def state(self, instance: str) -> str:
        answer = self.ec2.describe_instances(InstanceIds=[instance])
        return str(answer["Reservations"][0]["Instances"][0]["State"]["Name"])

    def suspend(self, *names: str) -> None:
        self.autoscaling.suspend_processes(
            AutoScalingGroupName=self.name, ScalingProcesses=list(names)
        )

    def replace_unhealthy(self) -> None:
        """What Auto Scaling does by itself, and moto does not."""
        for instance, health in self.members().items():
            if health.lower() == "unhealthy":
                self.terminate(instance)

    def terminate(self, instance: str) -> None:
        """Have the group terminate an instance and launch another."""
        self.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=False
        )
