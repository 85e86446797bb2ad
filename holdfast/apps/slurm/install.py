"""Installs Holdfast on a machine of a Slurm cluster, and removes exactly what it installed."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Self

from holdfast.adapters.slurm.install.plan import FileLine, Folder, Part, Plugin, Text
from holdfast.kit.commands import run
from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError, ConfigError

_COMPILES: Final = timedelta(minutes=1)
_FILE: Final = 0o644
_PROGRAM: Final = 0o755


class InstallAction(StrEnum):
    """Action on a part, done or planned."""

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    KEPT = "kept"
    """Others have written or changed the part."""

    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """Result for one part."""

    path: Path
    act: InstallAction
    detail: str = ""
    """The line, or why the part was kept."""

    text: str = ""
    """Content of the file; for the plugin, the command that compiles it."""


@dataclass(slots=True)
class Manifest:
    """Records what was written, so that nothing else is removed."""

    path: Path
    files: dict[str, str] = field(default_factory=dict)
    """``path -> SHA-256``."""

    folders: list[str] = field(default_factory=list)
    """Directories that were created, the outer ones first."""

    lines: dict[str, str] = field(default_factory=dict)
    """``path -> line`` in files of others."""

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the manifest of an installation; an empty one if there is none.

        Raises:
            ConfigError: the manifest cannot be read.

        """
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, dict(found["files"]), list(found["folders"]), dict(found["lines"]))
        except FileNotFoundError:
            return cls(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"list of installed files: {path}: {error}; restore it from a backup, or delete it"
                " and the installed files"
            ) from error

    def write(self) -> None:
        """Write the manifest; called before the files in it are written."""
        values = {"files": self.files, "folders": self.folders, "lines": self.lines}
        write_atomically(self.path, json.dumps(values, indent=2) + "\n")


class Installer:
    """Writes parts, or with ``dry_run`` reports what would be written."""

    def __init__(self, manifest: Manifest, *, dry_run: bool) -> None:
        self._manifest = manifest
        self._dry_run = dry_run

    def install(self, parts: Iterable[Part]) -> Iterator[Done]:
        """Write the parts that do not exist yet.

        Raises:
            BackendError: the plugin cannot be compiled.
            OSError: a part cannot be written. Parts written before are in the manifest.

        """
        self._make(self._manifest.path.parent)
        for part in parts:
            yield self._put(part)

    def _put(self, part: Part) -> Done:
        match part:
            case Text():
                content = part.text.encode()
                mode = _PROGRAM if part.is_program else _FILE
                return self._write(part.path, content, part.text, mode)
            case Folder():
                is_there = part.path.is_dir()
                self._make(part.path)
                return Done(
                    path=part.path,
                    act=InstallAction.UNCHANGED if is_there else InstallAction.WRITTEN,
                )
            case Plugin():
                command = f"{' '.join(part.command)} -o {part.path} {part.path.stem}.c\n"
                return self._write(part.path, compiled(part), command)
            case FileLine():
                return self._add(part)

    def _write(self, path: Path, content: bytes, shown: str, mode: int = _FILE) -> Done:
        before = _content(path)
        if before is not None and before == content:
            return Done(path=path, act=InstallAction.UNCHANGED)
        if before is not None and not self._is_own(path, before):
            return Done(
                path=path,
                act=InstallAction.KEPT,
                detail="it was changed, or was not written by Holdfast",
            )
        if not self._dry_run:
            self._make(path.parent)
            self._manifest.files[str(path)] = hashlib.sha256(content).hexdigest()
            self._manifest.write()
            _replace(path, content, mode)
        return Done(path=path, act=InstallAction.WRITTEN, text=shown)

    def _is_own(self, path: Path, content: bytes) -> bool:
        return self._manifest.files.get(str(path)) == hashlib.sha256(content).hexdigest()

    def _add(self, part: FileLine) -> Done:
        before = (_content(part.path) or b"").decode("utf-8", errors="surrogateescape")
        lines = before.splitlines()
        there = next((line for line in lines if _has(line, part.key)), None)
        if there == part.text:
            return Done(path=part.path, act=InstallAction.UNCHANGED, detail=part.text)
        if there is not None and there != self._manifest.lines.get(str(part.path)):
            return Done(path=part.path, act=InstallAction.KEPT, detail=f"existing line: {there}")
        if not self._dry_run:
            self._make(part.path.parent)
            if _content(part.path) is None:
                self._manifest.files[str(part.path)] = ""
            self._manifest.lines[str(part.path)] = part.text
            self._manifest.write()
            lines = [line for line in lines if line != there] + [part.text]
            _replace(part.path, _joined(lines))
        return Done(path=part.path, act=InstallAction.WRITTEN, detail=part.text)

    def _make(self, folder: Path) -> None:
        if self._dry_run:
            return
        missing = [one for one in (*reversed(folder.parents), folder) if not one.is_dir()]
        for one in missing:
            one.mkdir(mode=0o755)
            self._manifest.folders.append(str(one))
        if missing and self._manifest.path.parent.is_dir():
            self._manifest.write()

    def uninstall(self) -> Iterator[Done]:
        """Remove the installed parts that are unchanged."""
        manifest = self._manifest
        for name, line in manifest.lines.items():
            key = line.split()[1]
            yield from self._take_line(Path(name), key, is_own=name in manifest.files)
        for name, digest in manifest.files.items():
            if digest:
                yield from self._take_file(Path(name), digest)
        if self._dry_run:
            return
        manifest.path.unlink(missing_ok=True)
        for name in reversed(manifest.folders):
            with suppress(OSError):  # others have created files there
                Path(name).rmdir()
                yield Done(path=Path(name), act=InstallAction.REMOVED)

    def _take_line(self, path: Path, key: str, *, is_own: bool) -> Iterator[Done]:
        before = (_content(path) or b"").decode("utf-8", errors="surrogateescape")
        lines = before.splitlines()
        left = [line for line in lines if not _has(line, key)]
        if len(left) == len(lines):
            return
        if not self._dry_run:
            if is_own and not left:
                path.unlink()
            else:
                _replace(path, _joined(left))
        removed = [line.strip() for line in lines if _has(line, key)]
        yield Done(path=path, act=InstallAction.REMOVED, detail="; ".join(removed))

    def _take_file(self, path: Path, digest: str) -> Iterator[Done]:
        content = _content(path)
        if content is None:
            return
        if hashlib.sha256(content).hexdigest() != digest:
            yield Done(path=path, act=InstallAction.KEPT, detail="it was changed since")
            return
        if not self._dry_run:
            path.unlink()
        yield Done(path=path, act=InstallAction.REMOVED)


def compiled(plugin: Plugin) -> bytes:
    """Return the plugin as a shared object.

    Raises:
        BackendError: there is no compiler, or no header of Slurm; the message names the package.

    """
    with TemporaryDirectory() as folder:
        source, library = Path(folder, plugin.path.stem + ".c"), Path(folder, plugin.path.name)
        source.write_text(plugin.source, encoding="utf-8")
        argv = [*plugin.command, "-o", str(library), str(source)]
        done = run(argv, timeout=_COMPILES)
        if done.status:
            errors = "\n".join(done.errors.splitlines()[:5])
            raise BackendError(
                f"the SPANK plugin cannot be compiled:\n{errors}\nInstall gcc and Slurm's headers"
                " (Debian: libslurm-dev; RHEL: slurm-devel), or name them with --headers DIR"
            )
        return library.read_bytes()


def _has(line: str, key: str) -> bool:
    return not line.lstrip().startswith("#") and key in line.split()


def _joined(lines: Iterable[str]) -> bytes:
    text = "".join(f"{line}\n" for line in lines)
    return text.encode("utf-8", errors="surrogateescape")


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _replace(path: Path, content: bytes, mode: int = _FILE) -> None:
    """Replace a file atomically, as a program may be loading the old one."""
    mode = path.stat().st_mode & 0o777 if path.exists() else mode
    temporary = path.with_name(f".{path.name}.new")
    temporary.write_bytes(content)
    temporary.chmod(mode)
    temporary.replace(path)
