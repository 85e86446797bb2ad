"""The Linux machine that an agent runs on."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.adapters.host.inotify import FileWatch
from holdfast.adapters.host.kmsg import KmsgDevice, open_kmsg
from holdfast.adapters.host.log_file import LogFile, Position
from holdfast.adapters.host.sampler import Memory, Plan, Sampler
from holdfast.adapters.host.storage import storage_error
from holdfast.detectors.contract import LogLine, Readings
from holdfast.kit.files import write_atomically
from holdfast.model.errors import BackendError, ConfigError
from holdfast.ports.clock import Clock

NO_PLANS: Final[Mapping[str, Plan]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Where the logs of a machine are, and how far they were read."""

    kmsg: Path
    """The device /dev/kmsg, or a regular file with the records of this boot."""

    log_files: tuple[Path, ...] = ()
    """Syslog files with kernel lines among others; they may be missing as yet."""

    cursors: Path
    """Where to remember how far they were read; its directory is made if need be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """What the next agent of this boot must know."""

    positions: Mapping[str, Position] = field(default_factory=dict)
    samples: Memory = field(default_factory=dict)


_NOTHING: Final = _Remembered()


class LinuxHost:
    """A ``Host`` over the logs and the state of this machine."""

    def __init__(
        self,
        logs: Logs,
        *,
        boot_id: str,
        resume: bool,
        marks: Collection[str],
        clock: Clock,
        plans: Mapping[str, Plan] = NO_PLANS,
    ) -> None:
        """Open the logs.

        Args:
            logs: what to read.
            boot_id: see ``Host.boot_id``.
            resume: go on where an agent of this boot ended; its findings are known.
            marks: only log lines that hold one of these words are read.
            clock: tells when lines are seen and samples taken.
            plans: the sources of state to take samples of, by name.

        Raises:
            ConfigError: a log cannot be read, or the cursors cannot be kept.

        """
        self._boot_id = boot_id
        self._clock = clock
        self._cursors = logs.cursors
        self._committed = _remembered(logs.cursors, boot_id) if resume else _NOTHING
        self._sources: dict[Path, KmsgDevice | LogFile] = {}
        path = logs.cursors.parent
        try:
            path.mkdir(parents=True, exist_ok=True)
            path = logs.kmsg
            self._sources[path] = open_kmsg(path, marks, self._position(path))
            for path in logs.log_files:
                self._sources[path] = LogFile(path, marks, self._position(path), from_start=False)
        except OSError as error:
            raise ConfigError(f"cannot use {path}: {error.strerror}") from error
        self._sampler = Sampler(plans, self._committed.samples, clock=clock)
        self._watch = FileWatch(
            path for path, source in self._sources.items() if isinstance(source, LogFile)
        )

    def boot_id(self) -> str:
        """See ``Host.boot_id``."""
        return self._boot_id

    def read(self) -> Readings:
        """See ``Host.read``."""
        self._watch.refresh()
        now = self._clock.now()
        lines: list[LogLine] = []
        failure: BackendError | None = None
        for path, source in self._sources.items():
            try:
                lines += source.read(now)
            except OSError as error:
                failure = BackendError(f"cannot read {path}: {error.strerror}")
        samples = self._sampler.take()
        if failure is not None and not lines and not samples:  # what was read must not get lost
            raise failure
        return Readings(kernel_log=tuple(lines), samples=samples)

    def commit(self) -> None:
        """See ``Host.commit``."""
        reached = _Remembered(
            positions={str(path): source.position for path, source in self._sources.items()},
            samples=self._sampler.memory,
        )
        if reached == self._committed:
            return
        try:
            text = json.dumps(
                {
                    "boot_id": self._boot_id,
                    "positions": reached.positions,
                    "samples": reached.samples,
                }
            )
            write_atomically(self._cursors, text)
        except OSError as error:
            raise storage_error(error, self._cursors) from error
        self._committed = reached

    def filenos(self) -> list[int]:
        """Descriptors that become readable when something is logged or a sample is there."""
        devices = [
            source.fileno() for source in self._sources.values() if isinstance(source, KmsgDevice)
        ]
        watch = self._watch.fileno()
        watched = [] if watch is None else [watch]
        return [*devices, *watched, self._sampler.fileno()]

    @property
    def has_all_samples(self) -> bool:
        """Whether each source of state was read once, or was waited for in vain."""
        return self._sampler.has_all

    def is_polled(self) -> bool:
        """Whether the kernel does not tell of news in log files, so that one has to look."""
        return self._watch.fileno() is None

    def close(self) -> None:
        """Let go of the logs."""
        for source in self._sources.values():
            source.close()
        self._sampler.close()
        self._watch.close()

    def _position(self, path: Path) -> Position | None:
        return self._committed.positions.get(str(path))


def _remembered(cursors: Path, boot_id: str) -> _Remembered:
    """How far an agent of this boot has come; nothing if there was none."""
    try:
        saved = json.loads(cursors.read_text(encoding="utf-8"))
        if saved["boot_id"] != boot_id:
            return _NOTHING
        return _Remembered(
            positions=dict(saved["positions"]), samples=dict(saved.get("samples", {}))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _NOTHING
