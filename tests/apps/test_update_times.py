"""An update runs at the time of its schedule, on a real cluster of this machine."""

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

from aws_command_line import AwsCommandLine
from served_api import serving, with_keys
from test_jobs_of_clusters import until

MARGIN_S = 20
"""Time to create the cluster before its update; on a slow machine the run waits for it."""


def test_an_update_runs_at_its_time(local_platform, tmp_path) -> None:
    at = datetime.now(UTC) + timedelta(minutes=1, seconds=MARGIN_S)
    at = at.replace(second=0, microsecond=0)
    config = {"ScheduleExpression": f"cron({at.minute} {at.hour} {at.day} {at.month} ? {at.year})"}
    group = {
        "InstanceGroupName": "gpu",
        "InstanceCount": 2,
        "InstanceType": "ml.g5.xlarge",
        "ExecutionRole": "arn:aws:iam::123456789012:role/nodes",
        "ScheduledUpdateConfig": config,
    }
    with ExitStack() as stack:
        served = stack.enter_context(serving(with_keys(tmp_path / "api.toml")))
        aws = AwsCommandLine(served)
        stack.callback(aws.close)

        def call(operation: str, *argv: str):
            ended = aws(operation, "--cluster-name", "lab", *argv, "--output", "json")
            assert ended.code == 0, ended.err
            return json.loads(ended.out)

        def updated():
            time.sleep(0.5)
            [found] = call("describe-cluster")["InstanceGroups"]
            return found.get("SoftwareUpdateStatus") == "Succeeded"

        call("create-cluster", "--instance-groups", json.dumps([group]))
        [shown] = call("describe-cluster")["InstanceGroups"]
        assert shown["ScheduledUpdateConfig"] == config
        until(updated)
        nodes = call("list-cluster-nodes")["ClusterNodeSummaries"]
        launched = [datetime.fromtimestamp(one["LaunchTime"], UTC) for one in nodes]
        assert len(launched) == 2
        assert min(launched) >= at
        events = [one["Description"] for one in call("list-cluster-events")["Events"]]
        assert sum("Scheduled UpdateClusterSoftware initiated" in one for one in events) == 1
