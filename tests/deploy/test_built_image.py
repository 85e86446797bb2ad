"""Both images, built without a daemon on this machine and run."""

import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from shutil import disk_usage
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

import pytest
from chart import DEPLOY

from tools.image import AGENT_LIMIT, TARGETS, Builder, Image

ROOT = DEPLOY.parent


@pytest.fixture(scope="session")
def builds(
    image_tools: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Future[Path], Future[Image]]]:
    """Two builds of the same commit, which wait for downloads at the same time."""
    with ThreadPoolExecutor() as pool:
        yield (
            pool.submit(build, tmp_path_factory.mktemp("images")),
            pool.submit(build_agent, tmp_path_factory.mktemp("again")),
        )


@pytest.fixture(scope="session")
def images(builds: tuple[Future[Path], Future[Image]]) -> Path:
    """The folder with both images, each of which was built and run."""
    return builds[0].result()


def build(folder: Path) -> Path:
    command = (sys.executable, "-m", "tools.image", "--base=debian", "--output", folder)
    environment = {**os.environ, "TMPDIR": place()}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=False, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def place() -> str:
    """Where builds keep their small files, 1 GB of them: in memory, if there is some to spare.

    Elsewhere a fifth more work: ext4 looks long for inodes where many were freed just before.
    """
    memory = Path("/dev/shm")
    meminfo = Path("/proc/meminfo").read_text(encoding="utf-8")
    [available_kib] = re.findall(r"^MemAvailable: +(\d+) kB$", meminfo, re.MULTILINE)
    is_roomy = int(available_kib) > 12 * 2**20
    return str(memory) if is_roomy and disk_usage(memory).free > 8 * 2**30 else gettempdir()


def build_agent(folder: Path) -> Image:
    """Build the image for nodes from nothing but the base; its content is not looked into."""
    with TemporaryDirectory(prefix="holdfast-image-", dir=place()) as storage:
        builder = Builder(Path(storage))
        base = builder.base("debian")
        return builder.build("agent", base, "localhost/again", folder / "agent.oci.tar")


def listed(folder: Path) -> dict[str, dict[str, Any]]:
    """What a build wrote of its images, by target."""
    found = json.loads((folder / "images.json").read_text(encoding="utf-8"))
    return {one["target"]: one for one in found}


@pytest.fixture(params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def members(archive: Path) -> tuple[Mapping[str, Any], set[str]]:
    """The configuration of an image in an OCI archive, and the files of all its layers."""
    with tarfile.open(archive) as outer:

        def blob(digest: str) -> Any:
            return outer.extractfile(f"blobs/{digest.replace(':', '/')}")

        index = json.load(outer.extractfile("index.json") or pytest.fail("no index"))
        manifest = json.load(blob(index["manifests"][0]["digest"]))
        files: set[str] = set()
        for layer in manifest["layers"]:
            with tarfile.open(fileobj=blob(layer["digest"]), mode="r|*") as inner:
                files.update(one.name for one in inner)
        return json.load(blob(manifest["config"]["digest"])), files


def pinned(name: str) -> dict[str, str]:
    """The packages of a lock file and their versions."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {
        normal(package): version
        for package, version in re.findall(r"^([\w.-]+)==([^ ]+)", text, re.MULTILINE)
    }


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_an_image_runs_holdfast_as_nobody_in_particular(images: Path, target: str) -> None:
    config, files = members(images / f"{target}.oci.tar")

    assert config["config"]["User"] == "65532:65532"
    assert config["config"]["Entrypoint"] == ["holdfast"]
    assert config["config"]["Labels"]["org.opencontainers.image.version"]
    assert "opt/holdfast/bin/holdfast" in files


def test_the_listed_digest_is_that_of_the_archive(images: Path, target: str) -> None:
    with tarfile.open(images / f"{target}.oci.tar") as archive:
        index = json.load(archive.extractfile("index.json") or pytest.fail("no index"))

    assert index["manifests"][0]["digest"] == listed(images)[target]["digest"]


def test_an_image_has_compiled_modules_and_no_installer(images: Path, target: str) -> None:
    _, files = members(images / f"{target}.oci.tar")
    modules = {one for one in files if re.fullmatch(r"opt/holdfast/lib/.*/holdfast/\w+\.py", one)}

    assert modules
    for module in modules:
        folder, _, name = module.rpartition("/")
        assert any(one.startswith(f"{folder}/__pycache__/{name[:-3]}.") for one in files)
    assert [one for one in files if "/site-packages/pip/" in one] == []
    assert [one for one in files if re.search(r"var/lib/apt/lists/(?!\.wh)[^/]*_", one)] == []


def test_the_image_for_nodes_stays_small(images: Path) -> None:
    found = listed(images)

    assert 0 < found["agent"]["own"] <= AGENT_LIMIT
    assert found["agent"]["size"] < found["full"]["size"]


def test_another_build_of_the_same_commit_has_the_same_digest(
    images: Path, builds: tuple[Future[Path], Future[Image]]
) -> None:
    again = builds[1].result()

    assert again.digest == listed(images)["agent"]["digest"]


def references(sbom: Path) -> set[str]:
    """Identifiers of the packages of an SBOM, e.g. ``pkg:pypi/click@8.1.8``."""
    document = json.loads(sbom.read_text(encoding="utf-8"))
    assert document["spdxVersion"] == "SPDX-2.3"
    return {
        reference["referenceLocator"]
        for package in document["packages"]
        for reference in package.get("externalRefs", ())
    }


def python_packages(sbom: Path) -> dict[str, str]:
    """The Python packages of an SBOM and their versions."""
    pypi = (one.partition("pkg:pypi/")[2] for one in references(sbom))
    return dict(one.split("@") for one in pypi if one)


def test_the_sbom_lists_what_is_pinned_and_nothing_else_from_the_index(
    images: Path, target: str
) -> None:
    sbom = images / f"{target}.spdx.json"
    lock = {"agent": "agent.txt", "full": "image.txt"}[target]
    found = python_packages(sbom)

    assert found.pop("holdfast")
    assert {normal(name): version for name, version in found.items()} == pinned(lock)
    assert any(one.startswith("pkg:deb/debian/stress-ng@") for one in references(sbom))


def test_the_sbom_of_the_wheel_lists_it_and_what_it_requires(
    image_tools: None, tmp_path: Path
) -> None:
    pip = (sys.executable, "-m", "pip")
    subprocess.run((*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT), check=True)
    command = (sys.executable, "-m", "tools.sbom", tmp_path)
    subprocess.run(command, cwd=ROOT, check=True)
    [sbom] = tmp_path.glob("*.spdx.json")
    found = python_packages(sbom)
    version = sbom.name.removeprefix("holdfast-").removesuffix(".spdx.json")

    assert found.pop("holdfast") == version
    assert {"click", "rich"} <= found.keys() <= pinned("agent.txt").keys()


def test_a_folder_without_a_wheel_is_an_error(image_tools: None, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "tools.sbom", tmp_path)
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, encoding="utf-8")

    assert done.returncode == 1
    assert done.stderr == f"{tmp_path} has 0 wheels of Holdfast instead of 1\n"
