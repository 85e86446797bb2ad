"""``TieredStorageConfig``: jobs of a cluster whose checkpoints are copied, lost and restored."""

import contextlib
import json
import os
import re
import shutil
import signal
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from aws_command_line import REFUSED, AwsCommandLine
from moto.server import ThreadedMotoServer
from served_api import rejected, serving, with_keys
from test_jobs_of_clusters import DEADLINE_S, Clusters, logged, started, until

from tests.engines.checkpoint_watches import watches_of

TRAIN = f"{sys.executable} -m holdfast.apps.demo.train_numpy --hidden 8 --batch 8"
LOSE = f"""
cd "$HOLDFAST_CHECKPOINT_DIR"
echo "attempt $HOLDFAST_ATTEMPT has" $(ls)
if [ "$HOLDFAST_ATTEMPT" = 1 ]; then
  {TRAIN} --steps 60 --checkpoint-every 20 > /dev/null || exit 9
  rm final.json
  echo saved > "$1/saved"
  until [ -e "$1/lose" ]; do sleep 0.1; done
  find . -mindepth 1 -delete
  exit 1
fi
{TRAIN} --steps 80 --checkpoint-every 20 > /dev/null
"""
"""A job that trains for 60 steps, then loses all checkpoints, fails, and trains to its end."""

GROUP = {
    "InstanceGroupName": "workers",
    "InstanceType": "ml.p5.48xlarge",
    "InstanceCount": 1,
    "ExecutionRole": "arn:aws:iam::123456789012:role/ClusterRole",
}
ENABLE = "Mode=Enable,InstanceMemoryAllocationPercentage=20"


class MirroredClusters(Clusters):
    """Clusters whose checkpoints may be copied."""

    def __init__(self, served, aws, mirror: str) -> None:
        super().__init__(served, aws)
        self.mirror = mirror

    def create_with(self, name: str, tiers: str) -> str:
        """The ID of a new cluster whose node runs."""
        made = self.aws(
            "create-cluster", "--cluster-name", name, "--instance-groups", json.dumps([GROUP]),
            "--tiered-storage-config", tiers,
        )  # fmt: skip
        assert made.code == 0, made.err
        self.settle(name)
        return json.loads(made.out)["ClusterArn"].rpartition("/")[2]

    def update_with(self, name: str, tiers: str) -> None:
        ended = self.aws("update-cluster", "--cluster-name", name, "--tiered-storage-config", tiers)
        assert ended.code == 0, ended.err
        self.settle(name)

    def settle(self, name: str) -> None:
        until(lambda: self.describe(name).get("ClusterStatus") == "InService")

    def nodes_run(self, name: str) -> bool:
        """Whether the node of a cluster runs."""
        ended = self.aws("list-cluster-nodes", "--cluster-name", name)
        nodes = json.loads(ended.out)["ClusterNodeSummaries"]
        return [one["InstanceStatus"]["Status"] for one in nodes] == ["Running"]

    def gone(self, name: str) -> None:
        self.delete(name)
        until(lambda: not self.describe(name))

    def copies(self, uid: str) -> set[int]:
        """The steps of all complete copies of a cluster."""
        found = (
            re.match(rf"{uid}/[^/]+/step-(\d+)\.ckpt@[^/]+/manifest.json", key)
            for key in self.keys()
        )
        return {int(one[1]) for one in found if one}

    def keys(self) -> list[str]:
        """Paths of all files below the location."""
        base = Path(self.mirror)
        return [str(path.relative_to(base)) for path in base.rglob("*") if path.is_file()]

    def lose(self, cluster: str, uid: str, place: Path, *more: str) -> list[dict]:
        """What a job prints that loses its checkpoints once three have been copied."""
        with started(cluster, *more, "--", "bash", "-c", LOSE, "job", str(place)) as job:
            until((place / "saved").exists)
            until(lambda: self.copies(uid) == {20, 40, 60})
            (place / "lose").touch()
            return lines_of(job)


class OnS3(MirroredClusters):
    """The same with copies in a bucket."""

    def keys(self) -> list[str]:
        bucket = boto3.resource("s3").Bucket(self.mirror.split("/")[2])
        return [one.key.removeprefix("copies/") for one in bucket.objects.all()]


@contextlib.contextmanager
def mirroring(
    tmp_path: Path, mirror: str, kind: type[MirroredClusters] = MirroredClusters
) -> Iterator[MirroredClusters]:
    """``holdfast api`` with a location for copies; it may be started again."""
    config = with_keys(tmp_path / "api.toml", f'checkpoint_mirror = "{mirror}"')
    with serving(config) as served, contextlib.closing(AwsCommandLine(served)) as aws:
        yield kind(served, aws, mirror)
        served.process.terminate()
        served.process.wait(DEADLINE_S)


@pytest.fixture
def mirror(tmp_path) -> str:
    return str(tmp_path / "mirror")


@pytest.fixture
def clusters(local_platform, tmp_path, mirror) -> Iterator[MirroredClusters]:
    with mirroring(tmp_path, mirror) as found:
        yield found


@pytest.fixture
def s3_clusters(local_platform, tmp_path, monkeypatch) -> Iterator[OnS3]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL_S3": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    bucket = f"copies-{uuid.uuid4()}"
    boto3.client("s3").create_bucket(Bucket=bucket)
    with mirroring(tmp_path, f"s3://{bucket}/copies", OnS3) as found:
        yield found
    server.stop()


def lines_of(job) -> list[dict]:
    out, err = job.communicate(timeout=DEADLINE_S)
    assert job.returncode == 0, out + err
    return [json.loads(line) for line in out.splitlines()]


def had(lines: list[dict]) -> list[str]:
    """What each attempt found in its directory."""
    return [line for line in logged(lines) if line.startswith("attempt ")]


def restored(lines: list[dict]) -> list[str]:
    """The lines about copies that were restored."""
    chosen = [one["why"] for one in lines if one["event"] == "job.checkpoint_chosen"]
    return [why for why in chosen if "was restored from" in why]


@pytest.mark.usefixtures("local_platform")
@pytest.mark.parametrize("kind", ["clusters", "s3_clusters"])
def test_a_job_that_loses_all_its_checkpoints_resumes_from_the_copies(
    request, tmp_path, kind
) -> None:
    clusters = request.getfixturevalue(kind)
    uid = clusters.create_with("fs", ENABLE)
    described = clusters.describe("fs")["TieredStorageConfig"]
    assert described == {"Mode": "Enable", "InstanceMemoryAllocationPercentage": 20}

    lines = clusters.lose("fs", uid, tmp_path)

    assert had(lines) == ["attempt 1 has", "attempt 2 has step-000000060.ckpt"]
    [why] = restored(lines)
    assert f"step-000000060.ckpt was restored from {clusters.mirror}/{uid}/" in why
    assert (lines[-1]["outcome"], lines[-1]["step"], lines[-1]["attempts"]) == ("succeeded", 80, 2)
    until(lambda: 80 in clusters.copies(uid))  # its last checkpoint, too


def test_a_job_whose_volume_is_lost_resumes_from_the_copies(clusters, tmp_path) -> None:
    """The whole directory of the job's checkpoints and what Holdfast wrote beside it are lost."""
    uid = clusters.create_with("fs", ENABLE)
    folder = tmp_path / "volume" / "ckpt"
    script = LOSE.replace("find . -mindepth 1 -delete", f"rm -rf {folder.parent}")

    with started(
        "fs", "--checkpoint-dir", str(folder), "--", "bash", "-c", script, "job", str(tmp_path)
    ) as job:
        until(lambda: clusters.copies(uid) == {20, 40, 60})
        (tmp_path / "lose").touch()
        lines = lines_of(job)

    assert had(lines) == ["attempt 1 has", "attempt 2 has step-000000060.ckpt"]
    assert len(restored(lines)) == 1


def test_it_is_off_for_later_attempts_and_on_again(clusters, tmp_path, mirror) -> None:
    uid = clusters.create_with("fs", ENABLE)
    with started("fs", "--", "bash", "-c", LOSE, "job", str(tmp_path)) as job:
        until(lambda: clusters.copies(uid) == {20, 40, 60})
        clusters.update_with("fs", "Mode=Disable")
        assert clusters.describe("fs")["TieredStorageConfig"] == {"Mode": "Disable"}
        (tmp_path / "lose").touch()
        lines = lines_of(job)

    assert had(lines) == ["attempt 1 has", "attempt 2 has"]
    assert restored(lines) == []
    assert lines[-1]["step"] == 80
    assert clusters.copies(uid) == {20, 40, 60}

    clusters.update_with("fs", ENABLE)
    shutil.rmtree(mirror)
    for name in ("saved", "lose"):
        (tmp_path / name).unlink()
    assert len(restored(clusters.lose("fs", uid, tmp_path))) == 1


def test_a_later_cluster_of_the_name_does_not_get_the_copies(clusters, tmp_path) -> None:
    """Both clusters have a job that saves to the same directory."""
    folder = ("--checkpoint-dir", str(tmp_path / "volume" / "ckpt"))
    first = clusters.create_with("fs", ENABLE)
    clusters.lose("fs", first, tmp_path, *folder)
    clusters.gone("fs")
    before = clusters.copies(first)
    shutil.rmtree(tmp_path / "volume")

    second = clusters.create_with("fs", ENABLE)
    fails = "ls $HOLDFAST_CHECKPOINT_DIR; [ $HOLDFAST_ATTEMPT = 2 ]"
    with started("fs", *folder, "--", "bash", "-c", fails) as job:
        lines = lines_of(job)

    assert second != first
    assert (logged(lines), restored(lines)) == ([], [])
    assert (clusters.copies(first), clusters.copies(second)) == (before, set())


def test_it_survives_a_restart_of_the_server(local_platform, tmp_path, mirror) -> None:
    with mirroring(tmp_path, mirror) as clusters:
        uid = clusters.create_with("fs", ENABLE)
        described = clusters.describe("fs")
    with mirroring(tmp_path, mirror) as clusters:
        clusters.settle("fs")
        assert clusters.describe("fs")["TieredStorageConfig"] == described["TieredStorageConfig"]
        until(lambda: clusters.nodes_run("fs"))
        assert len(restored(clusters.lose("fs", uid, tmp_path))) == 1

    with serving(with_keys(tmp_path / "api.toml")) as served:
        text = served.said()
        assert "cluster fs: checkpoints of jobs are not copied: TieredStorageConfig: chec" in text
        with contextlib.closing(AwsCommandLine(served)) as aws:
            without = MirroredClusters(served, aws, mirror)
            refused = aws(
                "update-cluster", "--cluster-name", "fs", "--tiered-storage-config", ENABLE
            )
            assert refused.code == REFUSED
            assert "checkpoint_mirror is not set in the configuration of the server" in refused.err
            without.update_with("fs", "Mode=Disable")


@pytest.mark.parametrize(
    "location",
    [
        "mirror",
        "./mirror",
        "~/mirror",
        "s3://",
        "s3://b/p?x=1",
        "s3://b/p#x",
        "/a\\u0000b",
        "no://x",
    ],
)
def test_a_location_that_cannot_be_used_is_refused_at_the_start(
    local_platform, tmp_path, location
) -> None:
    config = with_keys(tmp_path / "api.toml", f'checkpoint_mirror = "{location}"')

    ended = rejected("api", "--config", str(config), "--listen", "0")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert "checkpoint_mirror: " in ended.stderr


def test_a_mirror_that_is_killed_is_started_again(clusters, tmp_path) -> None:
    uid = clusters.create_with("fs", ENABLE)
    folder = tmp_path / "ckpt"
    train = f"{TRAIN} --checkpoint-every 20 > /dev/null --steps"
    script = f"{train} 20; until [ -e {tmp_path}/more ]; do sleep 0.1; done; {train} 40"

    with started("fs", "--checkpoint-dir", str(folder), "--", "bash", "-c", script) as job:
        until(lambda: clusters.copies(uid) == {20})
        [killed] = watches_of(folder, "mirror")
        os.kill(killed, signal.SIGKILL)
        (tmp_path / "more").touch()
        lines_of(job)
        until(lambda: clusters.copies(uid) == {20, 40})

    assert killed not in watches_of(folder, "mirror")


def test_a_location_that_fails_costs_the_job_nothing_and_is_logged(clusters, tmp_path) -> None:
    Path(clusters.mirror).write_text("no directory")
    clusters.create_with("fs", ENABLE)
    train = f"{TRAIN} --steps 20 --checkpoint-every 10 > /dev/null; sleep 8"

    with started("fs", "--", "bash", "-c", train) as job:
        lines = lines_of(job)

    assert lines[-1]["outcome"] == "succeeded"
    [log] = tmp_path.glob("home/clusters/fs/checkpoint-mirror.log")
    assert f"{clusters.mirror}" in until(log.read_text)
