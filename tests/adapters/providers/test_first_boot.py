"""What a machine of EC2 does at its first boot, run here with its tools played."""

import base64
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast.adapters.providers.ec2_templates import user_data
from holdfast.model.clusters import LifecycleScripts, MachineGroup
from holdfast.model.names import MachineTag

BUCKET = "s3://sagemaker-a/it's here"
ENTRY = "on create.sh"
INSTANCE = "i-0123456789abcdef0"

CURL = f"""#!/bin/sh
case "$*" in
    *api/token*) echo TOKEN ;;
    *"token: TOKEN"*instance-id) echo {INSTANCE} ;;
    *"token: TOKEN"*local-ipv4) echo 10.0.0.7 ;;
    *) exit 22 ;;
esac
"""
AWS = """#!/bin/sh
echo "$*" >>calls
case "$*" in
    *"s3 cp"*) cp "$PLAYED"/* "$7" ;;
    *create-tags*) [ "$(grep -c create-tags calls)" -gt "$REFUSED" ] ;;
esac
"""


@dataclass
class Machine:
    folder: Path

    def __post_init__(self) -> None:
        for name, text in (("curl", CURL), ("aws", AWS)):
            program = self.folder / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text(text, encoding="utf-8")
            program.chmod(0o755)
        self.bucket = self.folder / "bucket"
        self.bucket.mkdir()

    def boot(self, entry: str | None, *, refused: int = 0) -> int:
        """Boot with that entry script, after so many refusals to tag; its exit code."""
        if entry is not None:
            self.bucket.joinpath(ENTRY).write_text(f"#!/bin/sh\n{entry}\n", encoding="utf-8")
        group = MachineGroup(cluster="lab", name="gpu", instance_type="ml.g5.xlarge")
        scripts = LifecycleScripts(source=BUCKET, on_create=ENTRY)
        program = self.folder / "user-data"
        program.write_bytes(base64.b64decode(user_data(group, scripts, "us-west-2")))
        program.chmod(0o755)
        ended = subprocess.run(
            [str(program)],
            cwd=self.folder,
            check=False,
            timeout=30,
            env={
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "PROVISION_LOG": str(self.folder / "var/log/provisioning.log"),
                "SAGEMAKER_RESOURCE_CONFIG_PATH": str(self.folder / "opt/resource_config.json"),
                "LIFECYCLE_DIR": str(self.folder / "lifecycle"),
                "PLAYED": str(self.bucket),
                "REFUSED": str(refused),
                "RETRY_S": "0",
            },
        )
        return ended.returncode

    @property
    def log(self) -> str:
        return self.folder.joinpath("var/log/provisioning.log").read_text(encoding="utf-8")

    @property
    def tagged(self) -> list[str]:
        calls = []
        for name in ("calls", "lifecycle/calls"):  # where it was when it called
            path = self.folder / name
            calls += path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [one for one in calls if "create-tags" in one]


@pytest.fixture
def machine(tmp_path) -> Machine:
    return Machine(tmp_path)


def tag(text: str) -> str:
    return (
        f"--region us-west-2 ec2 create-tags --resources {INSTANCE}"
        f" --tags Key={MachineTag.SCRIPTS},Value={text}"
    )


def test_scripts_run_in_their_folder_with_the_files_of_hyperpod(machine) -> None:
    machine.bucket.joinpath("other.txt").write_text("here", encoding="utf-8")

    code = machine.boot('cat other.txt; cp "$SAGEMAKER_RESOURCE_CONFIG_PATH" seen.json')

    seen = machine.folder.joinpath("lifecycle/seen.json").read_text(encoding="utf-8")
    [group] = json.loads(seen)["InstanceGroups"]
    assert code == 0
    assert (group["Name"], group["InstanceType"]) == ("gpu", "ml.g5.xlarge")
    assert group["Instances"][0]["InstanceId"] == INSTANCE
    assert group["Instances"][0]["CustomerIpAddress"] == "10.0.0.7"
    assert machine.tagged == [tag("done")]
    assert machine.log.splitlines() == [
        "START",
        f"[SageMaker] Lifecycle scripts were provided, with S3 uri: [{BUCKET}] and entrypoint"
        f" script: [{ENTRY}]",
        "[SageMaker] Downloading lifecycle scripts",
        "[SageMaker] The lifecycle scripts have been downloaded",
        "here[SageMaker] The lifecycle scripts succeeded",
    ]


@pytest.mark.parametrize(
    ("entry", "why"),
    [("exit 3", f"{ENTRY} ended with 3"), (None, f"cannot download {BUCKET}")],
)
def test_scripts_that_fail_say_why(machine, entry, why) -> None:
    assert machine.boot(entry) == 1

    assert machine.tagged == [tag(f"failed: {why}")]
    assert machine.log.endswith("[SageMaker] The lifecycle scripts failed\n")


def test_what_cannot_be_reported_at_once_is_reported_later(machine) -> None:
    machine.boot("true", refused=2)

    assert machine.tagged == [tag("done")] * 3
