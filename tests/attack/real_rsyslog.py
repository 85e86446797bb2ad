"""rsyslogd with Debian's rules, in a mount namespace with its own /dev, /var/log and kernel log."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from attacked_agent import NOBODY, TIMEOUT_S

STOCK_RULES: Final = Path("/etc/rsyslog.conf")
RULES_OF_AMAZON_LINUX: Final = (
    "*.info;mail.none;authpriv.none;cron.none                /var/log/messages\n"
)
"""From rsyslog.conf of Amazon Linux and Red Hat, in a file that Debian's stock rules include."""

_SANDBOX: Final = r"""
set -eu
mount -t tmpfs -o mode=755 tmpfs "$PLACE/dev"
for name in null zero random urandom; do
    touch "$PLACE/dev/$name"
    mount --bind "/dev/$name" "$PLACE/dev/$name"
done
mount --rbind "$PLACE/dev" /dev
mount --bind "$LOGS" /var/log
mount --bind "$PLACE/rules" /etc/rsyslog.d
mount --bind "$PLACE/kmsg" /proc/kmsg
exec rsyslogd -n -f "$RULES" -i "$PLACE/pid"
"""
_SEND: Final = """
socket(my $user, AF_UNIX, SOCK_DGRAM, 0) or die "$!\n";
send($user, $ARGV[0], 0, sockaddr_un("/dev/log")) or die "$!\n";
"""


class Rsyslog:
    """A running rsyslogd, and what a local user can send to it."""

    def __init__(self, process: subprocess.Popen[bytes], kernel: int) -> None:
        self._process = process
        self._kernel = kernel

    def logger(self, text: str) -> None:
        """Send a message with the tag of the kernel, as a user without any rights."""
        self._as_nobody("logger", "--tag", "kernel", text)

    def raw(self, text: str) -> None:
        """Send a message with a priority of the user's choice, as a user without any rights."""
        self._as_nobody("perl", "-MSocket", "-e", _SEND, text)  # essential in Debian

    def kernel(self, text: str) -> None:
        """Log a message in the kernel log that rsyslogd reads."""
        os.write(self._kernel, f"<4>[  378.703529] {text}\n".encode())

    def _as_nobody(self, *command: str) -> None:
        user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        inside = ("nsenter", f"--target={self._process.pid}", "--mount")
        done = subprocess.run(
            [*inside, *user, *command], check=False, capture_output=True, encoding="utf-8"
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stderr


@contextmanager
def rsyslog(place: Path, logs: Path) -> Iterator[Rsyslog]:
    """Run rsyslogd with its files below ``place``; it writes to ``logs`` as its ``/var/log``.

    Skips the test on a machine without rsyslogd.
    """
    if shutil.which("rsyslogd") is None or not STOCK_RULES.exists():
        pytest.skip("rsyslogd is missing: apt-get install rsyslog")
    for name in ("dev", "rules"):
        (place / name).mkdir(parents=True)
    rules = place / "rules/50-amazon-linux.conf"
    rules.write_text(RULES_OF_AMAZON_LINUX, encoding="utf-8")
    os.mkfifo(place / "kmsg")
    kernel = os.open(place / "kmsg", os.O_RDWR)  # so that the reader never meets its end
    process = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", _SANDBOX],
        env={**os.environ, "PLACE": str(place), "LOGS": str(logs), "RULES": str(STOCK_RULES)},
    )
    try:
        deadline = time.monotonic() + TIMEOUT_S
        while not (place / "pid").exists():  # written when its sockets are open
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield Rsyslog(process, kernel)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(TIMEOUT_S)
        os.close(kernel)
