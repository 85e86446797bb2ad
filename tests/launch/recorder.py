"""Stands in for NCCL's process group in a rank: dumps the flight recorder when the pipe asks."""

import os
import select
import threading
from collections.abc import Callable


def listen(dump: Callable[[], bytes]) -> None:
    """Write what ``dump`` returns to the file of the rank, each time that its pipe is written."""
    rank = os.environ["RANK"]
    pipe = f"{os.environ['TORCH_NCCL_DEBUG_INFO_PIPE_FILE']}{rank}.pipe"
    file = f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}"
    os.mkfifo(pipe)
    opened = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)

    def run() -> None:
        while select.select([opened], [], [])[0] and os.read(opened, 100):
            with open(file, "wb") as dumped:
                dumped.write(dump())

    threading.Thread(target=run, daemon=True).start()
