"""Linux host that an agent monitors."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Final

from holdfast.adapters.host.inotify import FileWatch
from holdfast.adapters.host.journal import NAME, Journal
from holdfast.adapters.host.kmsg import KmsgDevice, open_kmsg
from holdfast.adapters.host.log_file import LogFile, Position
from holdfast.adapters.host.sampler import Memory, Sampler, SourceSchedule
from holdfast.detectors.contract import LOGS, LogLine, Readings, Sample
from holdfast.kit.files import storage_error, write_atomically
from holdfast.model.errors import ConfigError
from holdfast.ports.clock import Clock

NO_PLANS: Final[Mapping[str, SourceSchedule]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """Log sources of a machine and the file of their read positions."""

    kmsg: Path | None = None
    """The device /dev/kmsg, or a regular file with the records of this boot."""

    journalctl: tuple[str, ...] = ()
    """Command that reads the systemd journal, with its options; empty for none."""

    log_files: tuple[Path, ...] = ()
    """Syslog files that contain kernel lines; they may not exist yet."""

    cursors: Path
    """File that stores the read positions; its directory is created if missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Remembered:
    """State that the next agent of this boot needs."""

    positions: Mapping[str, Position] = field(default_factory=dict)
    samples: Memory = field(default_factory=dict)


_NOTHING: Final = _Remembered()


class LinuxHost:
    """``Host`` that reads the logs and the state of this machine."""

    def __init__(
        self,
        logs: Logs,
        *,
        boot_id: str,
        resume: bool,
        keywords: Collection[str],
        clock: Clock,
        plans: Mapping[str, SourceSchedule] = NO_PLANS,
    ) -> None:
        """Open the logs.

        Args:
            logs: what to read.
            boot_id: see ``Host.boot_id``.
            resume: continue where the previous agent of this boot stopped; its findings are known.
            keywords: only log lines that contain one of these keywords are read.
            clock: clock for the times of lines and samples.
            plans: state sources to sample, by name.

        Raises:
            ConfigError: a log cannot be read, or the cursor file cannot be written.

        """
        self._boot_id = boot_id
        self._clock = clock
        self._cursors = logs.cursors
        self._committed = _remembered(logs.cursors, boot_id) if resume else _NOTHING
        self._failures: dict[str, str] | None = None
        self._sources: dict[str, KmsgDevice | LogFile | Journal] = {}
        self._open(logs, keywords)
        self._sampler = Sampler(plans, self._committed.samples, clock=clock)
        self._watch = FileWatch(
            Path(name) for name, source in self._sources.items() if isinstance(source, LogFile)
        )

    def boot_id(self) -> str:
        """See ``Host.boot_id``."""
        return self._boot_id

    def read(self) -> Readings:
        """See ``Host.read``."""
        self._watch.refresh()
        now = self._clock.now()
        lines: list[LogLine] = []
        failures: dict[str, str] = {}
        for name, source in self._sources.items():
            try:
                lines += source.read(now)
            except OSError as error:
                failures[name] = f"{name}: {error.strerror}"
            if isinstance(source, Journal) and source.error:
                failures[name] = source.error
        samples = self._sampler.take()
        if failures != self._failures:
            self._failures = failures
            samples[LOGS] = Sample(name=LOGS, taken_at=now, error="; ".join(failures.values()))
        return Readings(kernel_log=tuple(lines), samples=samples)

    def commit(self) -> None:
        """See ``Host.commit``."""
        reached = _Remembered(
            positions={name: source.position for name, source in self._sources.items()},
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
        """Descriptors that become readable when a log line or a sample is available."""
        logs = [
            source.fileno()
            for name, source in self._sources.items()
            # A failing source may stay readable and would cause a busy loop.
            if not isinstance(source, LogFile) and name not in (self._failures or ())
        ]
        watched = [fd for fd in (*logs, self._watch.fileno()) if fd is not None]
        return [*watched, self._sampler.fileno()]

    @property
    def has_all_samples(self) -> bool:
        """Whether each state source has been read once or has timed out."""
        return self._sampler.has_all

    def is_polled(self) -> bool:
        """Whether log files must be polled because inotify is unavailable."""
        return self._watch.fileno() is None

    def close(self) -> None:
        """Close the logs and stop sampling."""
        for source in self._sources.values():
            source.close()
        self._sampler.close()
        self._watch.close()

    def _open(self, logs: Logs, keywords: Collection[str]) -> None:
        known = self._committed.positions
        path = logs.cursors.parent
        try:
            path.mkdir(parents=True, exist_ok=True)
            if logs.kmsg is not None:
                path = logs.kmsg
                self._sources[str(path)] = open_kmsg(path, keywords, known.get(str(path)))
            for path in logs.log_files:
                self._sources[str(path)] = LogFile(
                    path, keywords, known.get(str(path)), is_kernel_log=False
                )
        except OSError as error:
            is_forbidden = path == logs.kmsg and isinstance(error, PermissionError)
            hint = "; reading it requires root or the capability CAP_SYSLOG" if is_forbidden else ""
            raise ConfigError(f"cannot use {path}: {error.strerror}{hint}") from error
        if logs.journalctl:
            self._sources[NAME] = Journal(logs.journalctl, keywords, known.get(NAME))


def _remembered(cursors: Path, boot_id: str) -> _Remembered:
    """Return the stored state of the previous agent of this boot; empty if there is none."""
    try:
        saved = json.loads(cursors.read_text(encoding="utf-8"))
        if saved["boot_id"] != boot_id:
            return _NOTHING
        return _Remembered(
            positions=dict(saved["positions"]), samples=dict(saved.get("samples", {}))
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _NOTHING
