"""Port of the machine that an agent watches."""

from typing import Protocol

from holdfast.detectors.contract import Readings


class Host(Protocol):
    """Reads one machine. ``commit`` may raise ``BackendError``: retry later."""

    def boot_id(self) -> str:
        """Return the identifier of this boot of the machine; it changes with every reboot."""
        ...

    def read(self) -> Readings:
        """Return what is new since the last call.

        The amount is bounded, so there may be more; empty once there is none. An agent that
        restarts in the same boot continues after the last ``commit``. In a new boot it reads all
        that the kernel has logged since the boot, and nothing of the previous one. Samples of the
        state are taken in the background when they are due: this waits for none. A log that cannot
        be read is reported by the sample ``LOGS``.
        """
        ...

    def commit(self) -> None:
        """Record that everything read so far was reported. Cheap if nothing is new."""
        ...
