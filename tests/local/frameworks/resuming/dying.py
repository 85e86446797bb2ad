"""The end of the first attempt: the newest checkpoint is cut in half, and the rank is killed."""

import os
import signal
from pathlib import Path

FOLDER = Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
SAVES = (2, 4, 6)
LAST = 8


def damage_and_die(path: Path) -> None:
    if os.environ["HOLDFAST_ATTEMPT"] == "1":
        os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
