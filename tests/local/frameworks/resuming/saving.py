"""Shared by the jobs of this directory: which steps are saved, and reports of the weights.

A first attempt trains on, in effect, after its last save: it waits until its node loses power.
With ``STOP_AFTER`` a job ends after its last save (``save``), or once it has resumed (``resume``).
"""

import hashlib
import os
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["HOLDFAST_CHECKPOINT_DIR"])
SAVES = (2, 4, 6)
LAST = 8
_DAMAGED_ATTEMPTS = os.environ.get("DAMAGED_ATTEMPTS", "").split(",")


def report_resume(step, weights) -> None:
    """Print from which step and weights the job resumes."""
    print(f"resumed at {step} with {_digest(weights)}", flush=True)
    _end("resume")


def report_save(step, weights, name, path) -> None:
    """Print what was saved: the name of the checkpoint, and its file with the weights."""
    print(f"saved {step} with {_digest(weights)} as {name}: {path}", flush=True)
    if step != SAVES[-1]:
        return
    _end("save")
    if os.environ.get("HOLDFAST_ATTEMPT") in _DAMAGED_ATTEMPTS:
        time.sleep(3600)


def _digest(weights) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(weights.items()):
        array = value.detach().cpu().numpy() if hasattr(value, "detach") else value
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def _end(when) -> None:
    if os.environ.get("STOP_AFTER") == when:
        sys.stdout.flush()
        os._exit(0)
