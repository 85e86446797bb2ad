"""Result of ``holdfast inject``."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """Injected fault and its expected effect."""

    fault: str
    run: str
    node: str
    rank: int | None
    """Rank that ran on the node; None if none did."""

    dry_run: bool
    profile: str
    """Profile that rates XIDs."""

    expected: str
    """Expected effect, by the given configuration or else by the default one."""

    kernel: tuple[str, ...] = ()
    """Lines of its kernel log: each message as /dev/kmsg record and as /var/log/messages line."""

    signal: str = ""
    processes: tuple[int, ...] = ()
    """PIDs of the processes that got the signal."""
