"""The machine that an agent watches."""

from typing import Protocol

from holdfast.detectors.contract import Readings


class Host(Protocol):
    """Reads one machine. ``commit`` may raise ``BackendError``: try again later."""

    def boot_id(self) -> str:
        """Names this boot of the machine; another after every reboot."""
        ...

    def read(self) -> Readings:
        """What has come since the last call.

        A bounded amount, so there may be more; empty once there is none. An agent that starts again
        in the same boot goes on behind the last ``commit``. In a new boot it reads all that the
        kernel has logged since, and nothing of the boot before. Samples of the state are taken in
        the background when they are due: this waits for none. A log that cannot be read is told
        with the sample ``LOGS``.
        """
        ...

    def commit(self) -> None:
        """Remember that everything read so far was reported. Cheap if nothing has come since."""
        ...
