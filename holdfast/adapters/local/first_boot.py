"""Runs the lifecycle scripts of a new machine once, before its agent starts.

Follows HyperPod: the scripts are downloaded, ``on_create`` is run in their directory with
``SAGEMAKER_RESOURCE_CONFIG_PATH`` set, and ``provisioning.log`` holds its output between markers
that people search for. If the script succeeds, this process becomes the agent; otherwise the
machine stays unchanged until it is removed.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import unquote, urlparse

from holdfast.adapters.local.layout import NodeDir
from holdfast.kit.files import storage_error, write_atomically
from holdfast.model.clusters import LifecycleScripts, MachineState

SCRIPT_TIMEOUT_S: Final = 1800
"""Timeout of a script in seconds. Field notes on HyperPod report 20 to 30 minutes for a
replacement, including the script."""

_GRACE_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Provision:
    """Result of the first boot of a machine."""

    state: MachineState
    message: str = ""


def prepare(directory: NodeDir, scripts: LifecycleScripts, resources: Mapping[str, object]) -> None:
    """Store what a machine runs at its first boot; no effect on one that has booted.

    Args:
        directory: directory of the machine.
        scripts: lifecycle scripts to run.
        resources: the content of ``resource_config.json``.

    Raises:
        BackendError: a file cannot be written; ``StorageFull`` if no space is left.

    """
    config = directory.path / "opt" / "ml" / "config"
    settings = {"source": scripts.source, "on_create": scripts.on_create}
    try:
        config.mkdir(parents=True, exist_ok=True)
        write_atomically(config / "resource_config.json", json.dumps(resources, indent=2) + "\n")
        write_atomically(directory.path / "first_boot.json", json.dumps(settings))
    except OSError as error:
        raise storage_error(error, directory.path) from error


def scripts_path(source: str) -> Path:
    """Return the directory of local lifecycle scripts, given as ``file://...`` or a path."""
    return Path(unquote(urlparse(source).path) if source.startswith("file://") else source)


def provision_of(directory: NodeDir) -> Provision:
    """Return the result of a machine's first boot; one without scripts is provisioned at once."""
    try:
        settings = json.loads((directory.path / "first_boot.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return Provision(MachineState.RUNNING)
    try:
        result = json.loads((directory.path / "provisioned.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        why = f"Its lifecycle scripts are fetched from {settings['source']} and run."
        return Provision(MachineState.JOINING, why)
    state = MachineState.RUNNING if result["succeeded"] else MachineState.FAILED
    return Provision(state, result["message"])


def main(argv: list[str]) -> int:
    """Run the scripts of a machine, then become its agent."""
    parser = argparse.ArgumentParser(prog="holdfast _first_boot", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("agent", nargs=argparse.REMAINDER)
    options = parser.parse_args(argv)
    directory = NodeDir(options.dir.absolute())
    if provision_of(directory).state is MachineState.JOINING:
        why = _provisioned(directory, options.timeout)
        result = {"succeeded": not why, "message": why}
        write_atomically(directory.path / "provisioned.json", json.dumps(result))
    if provision_of(directory).state is MachineState.FAILED:
        while True:
            signal.pause()
    os.execvp(options.agent[0], options.agent)  # noqa: S606 - it is the agent from now on


def _provisioned(directory: NodeDir, timeout_s: float) -> str:
    """Run the scripts; return the error, or an empty text."""
    log_path = directory.path / "var" / "log" / "provision" / "provisioning.log"
    log_path.parent.mkdir(parents=True, exist_ok=True)
    settings = json.loads((directory.path / "first_boot.json").read_text(encoding="utf-8"))
    source, entry = settings["source"], settings["on_create"]
    with log_path.open("a", encoding="utf-8") as log:
        _log(log, "START")
        _log(
            log,
            f"[SageMaker] Lifecycle scripts were provided, with S3 uri: [{source}] and entrypoint "
            f"script: [{entry}]",
        )
        scripts = directory.path / "lifecycle"
        why = _fetched(source, scripts, log)
        if not why:
            why = _run(scripts, entry, directory, log, timeout_s)
        result = "failed" if why else "succeeded"
        _log(log, f"[SageMaker] The lifecycle scripts {result}{': ' if why else ''}{why}")
    if not why:
        return ""
    return (
        f"Lifecycle script {entry}: {why}; see {log_path}, which is below "
        f"{directory.path.parent.parent / 'retired'} once the machine is removed"
    )


def _fetched(source: str, scripts: Path, log: IO[str]) -> str:
    _log(log, "[SageMaker] Downloading lifecycle scripts")
    shutil.rmtree(scripts, ignore_errors=True)
    try:
        if source.startswith("s3://"):
            _download(source, scripts)
        else:
            shutil.copytree(scripts_path(source), scripts)
    except OSError as error:
        return f"{source} cannot be fetched: {error.strerror or error}"
    _log(log, "[SageMaker] The lifecycle scripts have been downloaded")
    return ""


def _download(source: str, scripts: Path) -> None:
    try:
        s3 = import_module("holdfast.adapters.local.s3_scripts")
    except ModuleNotFoundError as missing:
        raise OSError(f"{missing.name} is not installed: pip install 'holdfast[aws]'") from missing
    s3.download(source, scripts)


def _run(scripts: Path, entry: str, directory: NodeDir, log: IO[str], timeout_s: float) -> str:
    script = scripts / entry
    if not script.is_file():
        return "file not found"
    config = directory.path / "opt" / "ml" / "config" / "resource_config.json"
    env = {
        **os.environ,
        "SAGEMAKER_RESOURCE_CONFIG_PATH": str(config),
        "HOLDFAST_MACHINE_ROOT": str(directory.path),
    }
    try:
        process = subprocess.Popen(
            _argv(script), cwd=script.parent, env=env, stdin=subprocess.DEVNULL,
            stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"it cannot be run: {error.strerror}"
    try:
        code = process.wait(timeout_s)
    except subprocess.TimeoutExpired:
        _end(process)
        return f"it took longer than {timeout_s:g} seconds"
    return f"exited with code {code}" if code else ""


def _argv(script: Path) -> Sequence[str]:
    """Return the command line as HyperPod runs it: copied from S3, no file is executable."""
    if os.access(script, os.X_OK):
        return [str(script)]
    return [sys.executable if script.suffix == ".py" else "/bin/bash", str(script)]


def _end(process: subprocess.Popen[Any]) -> None:
    os.killpg(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + _GRACE_S
    while process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):  # also ends processes that it left running
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _log(log: IO[str], line: str) -> None:
    log.write(line + "\n")
    log.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
