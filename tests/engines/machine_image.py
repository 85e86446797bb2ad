"""An image of this machine's Python and Holdfast for throw-away nodes, made without a registry.

One layer holds the interpreter with its standard library, the packages that
``requirements/image.txt`` pins as far as they are installed here, ``holdfast`` as it is in this
checkout, a few programs of the machine, and the shared libraries of all of them. Two images share
it: ``IMAGE``, with the user and the entry point of the real one, and ``PAUSE``, which sleeps. Takes
seconds; ``tools/image.py`` builds what is released.
"""

import compileall
import ctypes
import hashlib
import importlib.metadata
import io
import json
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
IMAGE: Final = "machine.test/holdfast:test"
PAUSE: Final = "machine.test/pause:test"

_PROGRAMS: Final = (
    *("bash", "cat", "chroot", "cp", "date", "env", "false", "head", "hostname", "id", "ls"),
    *("mkdir", "mv", "nsenter", "readlink", "rm", "sh", "sleep", "stat", "stress-ng", "tail"),
    *("tee", "test", "touch", "true", "uname"),
)
_NOT_IN_IMAGES: Final = {"test", "idlelib", "tkinter", "turtledemo", "lib2to3", "ensurepip",
                         "site-packages"}  # fmt: skip
"""Folders of the standard library that no program here imports."""

_BY_NAME: Final = ("libdl.so.2", "libgcc_s.so.1", "libpthread.so.0", "librt.so.1", "libstdc++.so.6",
                   "libutil.so.1")  # fmt: skip
"""Libraries that no program here is linked with: libc loads libgcc when Python ends with a thread,
and PyTorch and Ray, which pods mount, need all."""

_OWNER: Final = "65532"
_FILES: Final = {
    "etc/passwd": f"root:x:0:0::/:/bin/sh\nholdfast:x:{_OWNER}:{_OWNER}::/:/bin/sh\n",
    "etc/group": f"root:x:0:\nholdfast:x:{_OWNER}:\n",
    "etc/nsswitch.conf": "hosts: files dns\n",
}
_SCRIPT: Final = "import sys\nfrom holdfast.apps.main import {0}\nsys.exit({0}())\n"
_PATH: Final = "/usr/local/bin:/usr/bin:/bin"
_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"


def write_archive(archive: Path) -> None:
    """Write both images as an OCI archive, for ``ctr images import``."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w", format=tarfile.GNU_FORMAT) as tar:
        _fill(tar)
    with layer.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    with tarfile.open(archive, "w") as outer:
        outer.add(layer, f"blobs/sha256/{digest}")
        manifests = []
        for name, config in _configurations().items():
            config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}"]}
            manifest = {
                "schemaVersion": 2,
                "mediaType": _MANIFEST,
                "config": {"mediaType": _CONFIG, **_blob(outer, config)},
                "layers": [
                    {
                        "mediaType": _LAYER,
                        "digest": f"sha256:{digest}",
                        "size": layer.stat().st_size,
                    }
                ],
            }
            names = {"io.containerd.image.name": name}
            about = {"mediaType": _MANIFEST, **_blob(outer, manifest), "annotations": names}
            manifests.append(about)
        _add(outer, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}))
        _add(outer, "index.json", json.dumps({"schemaVersion": 2, "manifests": manifests}))
    layer.unlink()


def _configurations() -> dict[str, dict[str, Any]]:
    platform = {"architecture": _architecture(), "os": "linux"}
    environment = [f"PATH={_PATH}", "PYTHONDONTWRITEBYTECODE=1", "PYTHONUNBUFFERED=1"]
    holdfast = {"User": f"{_OWNER}:{_OWNER}", "Entrypoint": ["holdfast"], "Env": environment}
    return {
        IMAGE: {**platform, "config": holdfast},
        PAUSE: {**platform, "config": {"Entrypoint": ["sleep", "infinity"], "Env": environment}},
    }


def _architecture() -> str:
    machine = sysconfig.get_platform().partition("-")[2]
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def _fill(tar: tarfile.TarFile) -> None:
    """Put everything into a layer, each file where it is on this machine."""
    python = Path(sys.base_prefix, "bin", _interpreter())
    library, site = Path(sysconfig.get_path("stdlib")), _site_packages(python)
    compileall.compile_dir(ROOT / "holdfast", quiet=2)
    contents: dict[str, Path] = {str(python): python}
    contents |= {str(path): path for path in _standard_library(library)}
    contents |= {str(site / path.relative_to(ROOT)): path for path in _files_of(ROOT / "holdfast")}
    contents |= {str(site / name): path for name, path in _packages()}
    programs = {name: Path(found) for name in _PROGRAMS if (found := shutil.which(name))}
    contents |= {f"/usr/bin/{name}": path.resolve() for name, path in programs.items()}
    binaries = [python, *(path.resolve() for path in programs.values())]
    binaries += [path for path in contents.values() if ".so" in path.suffixes]
    contents |= {name: Path(name).resolve() for name in _shared_libraries(binaries)}
    _add_folders(tar, {*contents, *(f"/{name}" for name in _FILES), "/usr/local/bin/_", "/bin/_"})
    for name, path in sorted(contents.items()):
        tar.add(path.resolve(), name.lstrip("/"), filter=_of_root)
    for name, text in _FILES.items():
        _add(tar, name, text)
    for name, start in (("holdfast", "main"), ("hyperpodrun", "hyperpodrun")):
        _add(tar, f"usr/local/bin/{name}", f"#!{python}\n{_SCRIPT.format(start)}", mode=0o755)
    for name in ("python", "python3"):
        _link(tar, f"usr/local/bin/{name}", str(python))
    for name in ("bash", "sh"):
        _link(tar, f"bin/{name}", f"/usr/bin/{name}")


def _interpreter() -> str:
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _site_packages(python: Path) -> Path:
    """Where an interpreter looks for packages; the directory has another name on Debian."""
    command = [str(python), "-c", "import site; print(site.getsitepackages()[0])"]
    return Path(subprocess.check_output(command, encoding="utf-8").strip())


def _standard_library(library: Path) -> Iterator[Path]:
    for path in library.iterdir():
        if path.is_dir() and path.name not in _NOT_IN_IMAGES and "config-" not in path.name:
            yield from _files_of(path)
        elif path.is_file():
            yield path


def _files_of(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def _packages() -> Iterator[tuple[str, Path]]:
    """Files of the packages that the real image has, by their paths below ``site-packages``."""
    text = (ROOT / "requirements/image.txt").read_text(encoding="utf-8")
    for package in re.findall(r"^([\w.-]+)==", text, re.MULTILINE):
        try:
            files = importlib.metadata.files(package) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for file in files:
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file():
                yield str(file), path


def _shared_libraries(binaries: Iterable[Path]) -> set[str]:
    """Names under which the linker finds what programs need, the linker itself included."""
    found = {"/etc/ld.so.cache"} if Path("/etc/ld.so.cache").exists() else set()
    for name in _BY_NAME:
        with suppress(OSError):  # a machine without PyTorch may lack it
            ctypes.CDLL(name)
    mapped = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    found |= {str(Path(one).with_name(name)) for one in mapped for name in _BY_NAME if name in one}
    done = subprocess.run(
        ["ldd", *binaries], check=False, capture_output=True, encoding="utf-8"
    )  # a static program makes it fail
    return found | set(re.findall(r"^\s+(?:\S+ => )?(/\S+) \(0x", done.stdout, re.MULTILINE))


def _add_folders(tar: tarfile.TarFile, names: Iterable[str]) -> None:
    folders = {str(one) for name in names for one in Path(name).parents}
    for folder in sorted({*folders, "/tmp", "/run", "/proc", "/sys", "/dev"} - {"/"}):
        member = tarfile.TarInfo(folder.lstrip("/"))
        member.type, member.mode = tarfile.DIRTYPE, 0o1777 if folder == "/tmp" else 0o755
        tar.addfile(member)


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    member.mode |= 0o444 | (member.mode & 0o100) // 0o100 * 0o111
    return member


def _link(tar: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = tarfile.SYMTYPE, target
    tar.addfile(member)


def _add(tar: tarfile.TarFile, name: str, text: str, mode: int = 0o644) -> None:
    content = text.encode()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


def _blob(tar: tarfile.TarFile, value: Any) -> dict[str, Any]:
    text = json.dumps(value)
    digest = hashlib.sha256(text.encode()).hexdigest()
    _add(tar, f"blobs/sha256/{digest}", text)
    return {"digest": f"sha256:{digest}", "size": len(text)}
