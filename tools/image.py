"""Builds the images of deploy/docker/Dockerfile with buildah: no daemon, no Docker.

    make image                                    both images, into build/image (minutes)
    make image ARGS='--target agent'              one of them
    make image ARGS='--base debian'               on Debian's packages, without a registry

Writes for each target ``TARGET.oci.tar`` (for ``skopeo copy``, ``podman load`` or ``ctr images
import``), ``TARGET.spdx.json`` (its SBOM) and, for all, ``images.json`` (digests, sizes in bytes).
Each image is run before it counts as built. The base is the one that the Dockerfile pins where a
registry can be reached, else one of Debian's packages, made by mmdebstrap and kept unpacked in
``~/.cache/holdfast`` (elsewhere with ``HOLDFAST_CACHE``). On the same base and with the same Debian
packages, each build of a commit has the same digest. Needs root.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tools.build_steps import CannotBuild, output
from tools.sbom import write_sbom

ROOT: Final = Path(__file__).parents[1]
DOCKERFILE: Final = ROOT / "deploy/docker/Dockerfile"
TARGETS: Final = ("agent", "full")
FOLDER: Final = ROOT / "build/image"

AGENT_LIMIT: Final = 80 * 2**20
"""Bytes that the image for nodes may add to its base: thousands of nodes pull it."""

_USER: Final = "65532"
_SUITE: Final = "bookworm"
_PACKAGES: Final = ("ca-certificates", "python-is-python3", "python3", "python3-venv")
_PULL_TIMEOUT_S: Final = 60.0
_TIMEOUT_S: Final = 1800.0
_DEBIAN: Final = "localhost/base"
_OF_THE_HOST: Final = ("/etc/ssl/certs", "/etc/pip.conf")
"""What a build reads of this machine, so that it works behind a proxy with its own authority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image."""

    target: str
    digest: str
    """Of its manifest: ``sha256:`` and 64 hexadecimal digits."""

    size: int
    """Bytes of its uncompressed layers, of which ``own`` are not of the base."""

    own: int
    revision: str
    """The commit that it was built from."""


class Builder:
    """Builds images in a storage of its own, which is deleted in the end."""

    def __init__(self, storage: Path) -> None:
        self._storage = storage
        self._stores: tuple[str, ...] = ()

    def base(self, choice: str) -> str:
        """Return the name of the base image in the storage; fetch or make it."""
        pinned = _found(DOCKERFILE, r"^ARG PYTHON=(\S+)$")
        if choice != "debian":
            try:
                self._buildah("pull", "--quiet", pinned, timeout_s=_PULL_TIMEOUT_S)
            except CannotBuild as error:
                if choice == "registry":
                    raise
                print(f"The pinned base cannot be pulled; building on Debian's packages. {error}")
            else:
                return pinned
        # An additional image store, so that no build unpacks and commits the base. Its option names
        # no storage driver: buildah uses vfs where the kernel does not support overlay.
        self._stores = (f"--storage-opt=.imagestore={debian_base()}",)
        return _DEBIAN

    def import_base(self, archive: Path) -> Path:
        """Make an image of a tar file; return its directory, an additional image store."""
        container = self._buildah("from", "scratch")
        self._buildah("add", "--quiet", container, str(archive), "/")
        self._buildah("commit", "--quiet", "--timestamp", "0", container, _DEBIAN)
        self._buildah("rm", container)
        return self._storage / "root"

    def build(self, target: str, base: str, tag: str, archive: Path) -> Image:
        """Build one target of the Dockerfile and write it as an OCI archive."""
        revision, at = output("git", "-C", str(ROOT), "log", "-1", "--format=%H %ct").split()
        volumes = [f"--volume={path}:{path}:ro" for path in _OF_THE_HOST if Path(path).exists()]
        labels = (f"org.opencontainers.image.revision={revision}",
                  f"org.opencontainers.image.version={_version()}")  # fmt: skip
        self._buildah(
            *("bud", "--quiet", "--layers", "--network=host", "--format=oci"),
            *(f"--timestamp={at}", f"--target={target}", f"--build-arg=PYTHON={base}"),
            *(f"--file={DOCKERFILE}", f"--ignorefile={DOCKERFILE}.dockerignore", f"--tag={tag}"),
            *(f"--label={label}" for label in labels),
            *volumes,
            str(ROOT),
        )
        size, under = self._size(tag), self._size(base)
        return Image(
            target=target,
            digest=self._save(tag, archive),
            size=size,
            own=size - under,
            revision=revision,
        )

    def run(self, tag: str, *argv: str) -> str:
        """Run a command in a container of the image, and return what it printed."""
        container = self._buildah("from", "--pull-never", tag)
        try:
            return self._buildah("run", container, "--", *argv)
        finally:
            self._buildah("rm", container)

    def _save(self, tag: str, archive: Path) -> str:
        archive.unlink(missing_ok=True)
        digest = self._storage / "digest"
        options = ("--quiet", "--disable-compression", f"--digestfile={digest}")
        self._buildah("push", *options, tag, f"oci-archive:{archive}:{tag}")
        return digest.read_text(encoding="utf-8").strip()

    def _size(self, tag: str) -> int:
        container = self._buildah("from", "--pull-never", tag)
        folder = self._buildah("mount", container)
        try:  # without --one-file-system: the base may be on another file system than the layers
            return int(output("du", "--summarize", "--block-size=1", folder).split()[0])
        finally:
            self._buildah("rm", container)

    def _buildah(self, *arguments: str, timeout_s: float = _TIMEOUT_S) -> str:
        places = (f"--root={self._storage}/root", f"--runroot={self._storage}/run", *self._stores)
        chroot = {"BUILDAH_ISOLATION": "chroot"}
        return output("buildah", *places, *arguments, timeout_s=timeout_s, environment=chroot)


def debian_base() -> Path:
    """Return an image store with a small Debian with Python; make it if there is none."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    cache = Path(os.environ.get("HOLDFAST_CACHE") or Path(home, "holdfast")).absolute()
    recipe = hashlib.sha256(repr((_SUITE, _PACKAGES)).encode()).hexdigest()[:16]
    place = cache / f"image-base-{recipe}"
    cache.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            # Beside its place, as it can be renamed only within a file system.
            with tempfile.TemporaryDirectory(prefix="image-base-", dir=cache) as new:
                archive = Path(new, "base.tar")
                include = f"--include={','.join(_PACKAGES)}"
                output("mmdebstrap", "--quiet", "--variant=minbase", "--format=tar", include,
                        _SUITE, str(archive))  # fmt: skip
                Builder(Path(new)).import_base(archive).rename(place)
    return place


def main(arguments: Sequence[str]) -> int:
    """Build what the arguments ask for; the exit code is 1 if that is not possible."""
    options = _options(arguments)
    try:
        for tool in ("buildah", "git", "mmdebstrap"):
            if shutil.which(tool) is None:
                raise CannotBuild(f"{tool} is missing: apt-get install buildah git mmdebstrap")
        _build_all(options)
    except CannotBuild as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="make image ARGS=...",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--target", choices=TARGETS, action="append", help="default: both")
    parser.add_argument("--base", choices=("auto", "registry", "debian"), default="auto")
    parser.add_argument("--tag", default=_version(), help="default: the version")
    parser.add_argument("--output", type=Path, default=FOLDER, help="default: build/image")
    return parser.parse_args(arguments)


def _build_all(options: argparse.Namespace) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    images = []
    with tempfile.TemporaryDirectory(prefix="holdfast-image-") as storage:
        builder = Builder(Path(storage))
        base = builder.base(options.base)
        for target in options.target or TARGETS:
            print(f"Building {target}", flush=True)
            tag = f"localhost/holdfast-{target}:{options.tag}"
            archive = options.output / f"{target}.oci.tar"
            image = builder.build(target, base, tag, archive)
            _check(builder, image, tag)
            sbom = archive.with_name(f"{target}.spdx.json")
            write_sbom(f"oci-archive:{archive}", sbom)
            images.append(image)
            print(f"  {image.digest}")
            print(f"  {image.size / 2**20:.0f} MiB, {image.own / 2**20:.0f} of them above its base")
            print(f"  {archive}, {sbom.name}", flush=True)
    text = json.dumps([asdict(image) for image in images], indent=2)
    (options.output / "images.json").write_text(f"{text}\n", encoding="utf-8")


def _check(builder: Builder, image: Image, tag: str) -> None:
    """Run every command of an image as its user, and compare its size with the limit.

    Raises:
        CannotBuild: a command fails, or the image for nodes is too large.

    """
    if image.target == "agent" and image.own > AGENT_LIMIT:
        raise CannotBuild(
            f"the image for nodes adds {image.own / 2**20:.0f} MiB to its base; at most "
            f"{AGENT_LIMIT / 2**20:.0f} are allowed: remove packages from requirements/agent.txt"
        )
    if (user := builder.run(tag, "id", "-u")) != _USER:
        raise CannotBuild(f"the image runs as user {user} instead of {_USER}")
    builder.run(tag, "holdfast", "--version")
    builder.run(tag, "holdfast", "agent", "--help")
    missing = ["yaml"] if image.target == "agent" else []
    count = builder.run(tag, "python", "-c", _EVERY_HELP, *missing)
    print(f"  {count} commands run in it")


_EVERY_HELP: Final = """
import sys
import click
from click.testing import CliRunner
from holdfast.apps.cli.main import cli

def walk(group, path, context):
    for name in group.list_commands(context):
        try:
            command = group.get_command(context, name)
        except ModuleNotFoundError as error:
            assert error.name in sys.argv[1:], error
            continue
        yield [*path, name]
        if isinstance(command, click.Group):
            yield from walk(command, [*path, name], context)

commands = [*walk(cli, [], click.Context(cli))]
for one in commands:
    result = CliRunner().invoke(cli, [*one, "--help"])
    assert result.exit_code == 0, (one, result.output)
print(len(commands))
"""


def _version() -> str:
    return _found(ROOT / "holdfast/__init__.py", r'^__version__ = "(.+)"$')


def _found(path: Path, pattern: str) -> str:
    found = re.search(pattern, path.read_text(encoding="utf-8"), re.MULTILINE)
    if found is None:
        raise CannotBuild(f"{path} has no line like {pattern}")
    return found[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
