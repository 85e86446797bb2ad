"""Runs a program so that its plug can be pulled, without any privilege.

``python -m tests.engines.plug PARENT PROGRAM [ARGUMENT ...]`` stays while anything of the
program is left, also what has made itself a daemon. SIGTERM ends all of it at once, as a power loss
would; so does the end of the thread of process ``PARENT`` that started it.
"""

import os
import signal
import subprocess
import sys
from types import FrameType

from holdfast.kit.processes import become_subreaper, die_with_parent, kill_below


def main(parent: int, command: list[str]) -> int:
    """Run ``command`` until nothing of it is left; returns its exit code."""
    become_subreaper()
    signal.signal(signal.SIGTERM, _pull)
    die_with_parent(parent, signal.SIGTERM)
    program = subprocess.Popen(command).pid
    code = 0
    while True:
        try:
            pid, status = os.wait()
        except ChildProcessError:
            return code
        if pid == program:
            code = os.waitstatus_to_exitcode(status)


def _pull(_number: int, _frame: FrameType | None) -> None:
    kill_below(os.getpid())
    os._exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
