"""A terminal in a container as a kubelet serves it, with a real program on a real terminal."""

import fcntl
import json
import os
import pty
import select
import ssl
import struct
import subprocess
import termios
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

_MASK = 4
_CLOSE = b"\x88\x02\x03\xe8"
"""A frame with code 1000: a normal end."""

_PIECE = 1 << 16


def ended(code: int) -> bytes:
    """The last bytes of a command: as a kubelet does, with the end of the connection at once."""
    return frames(3, status_of(code)) + _CLOSE


def frames(channel: int, content: bytes) -> bytes:
    """A message in frames of 1,000 bytes at most, so that there are some of each form."""
    whole = bytes([channel]) + content
    parts = [whole[n : n + 1000] for n in range(0, len(whole), 1000)]
    reported = b""
    for number, part in enumerate(parts):
        first = (0x80 if number == len(parts) - 1 else 0) | (0 if number else 2)
        size = bytes([len(part)]) if len(part) < 126 else b"\x7e" + len(part).to_bytes(2)
        reported += bytes([first]) + size + part
    return reported


def status_of(code: int) -> bytes:
    """Message of a kubelet that a command ended."""
    status: dict[str, Any] = {"status": "Success"}
    if code:
        message = f"command terminated with non-zero exit code: exit status {code}"
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status = {
            "status": "Failure",
            "reason": "NonZeroExitCode",
            "message": message,
            "details": {"causes": causes},
        }
    return json.dumps(status).encode()


class FakeTerminal:
    """One command on a terminal, and the connection to who sits before it."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._unread = b""
        self._is_over = False

    def hang_up(self) -> None:
        """Break the connection, with no word."""
        self._is_over = True

    def run(self, command: Sequence[str]) -> None:
        """Until the command ends, or the other side is gone: then it is hung up on."""
        own_end, child_end = pty.openpty()
        with subprocess.Popen(
            ["setsid", "--ctty", *command],
            stdin=child_end,
            stdout=child_end,
            stderr=child_end,
        ) as process:
            os.close(child_end)
            with suppress(OSError):
                self._relay(own_end, process)
            process.kill()
        os.close(own_end)

    def _relay(self, terminal: int, process: subprocess.Popen[bytes]) -> None:
        self._connection.settimeout(10)
        while not self._is_over:
            watched: list[ssl.SSLSocket | int] = [terminal, self._connection]
            ready, _, _ = select.select(watched, [], [], 0.02)
            if terminal in ready:
                try:
                    output = os.read(terminal, _PIECE)
                except OSError:  # EIO of Linux for a terminal that no process has open
                    self._connection.sendall(ended(process.wait()))
                    return
                self._connection.sendall(frames(1, output))
            if self._connection in ready or self._connection.pending():
                received = self._connection.recv(_PIECE)
                if not received:
                    return
                self._unread += received
                for channel, content in self._messages():
                    self._take(terminal, channel, content)

    def _take(self, terminal: int, channel: int, content: bytes) -> None:
        if channel == 0:
            os.write(terminal, content)
        elif channel == 4:
            size = json.loads(content)
            packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, packed)

    def _messages(self) -> Iterator[tuple[int, bytes]]:
        """What has come whole; a client masks everything, and ours sends each message at once."""
        while len(self._unread) >= 2:
            begin, size = 2, self._unread[1] & 0x7F
            if size >= 126:
                begin = 4 if size == 126 else 10
                size = int.from_bytes(self._unread[2:begin])
            end = begin + _MASK + size
            if len(self._unread) < end:
                return
            mask = self._unread[begin : begin + _MASK] * (size // _MASK + 1)
            masked = self._unread[begin + _MASK : end]
            content = bytes(a ^ b for a, b in zip(masked, mask, strict=False))
            self._unread = self._unread[end:]
            yield content[0], content[1:]
