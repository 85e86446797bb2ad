"""Prints as JSON when the newest checkpoint of a directory was saved, in seconds since 1970.

``python -m holdfast.adapters.checkpoints.last_save DIRECTORY`` runs as a separate process, because
a read of storage that does not respond never returns. It prints 0 if there is no checkpoint, and
nothing, with exit status 1, if the directory cannot be read. Checkpoints whose save has not ended
do not count.
"""

import json
import os
import sys
from pathlib import Path

from holdfast.adapters.checkpoints.directory import CheckpointDirectory
from holdfast.kit.processes import die_with_parent
from holdfast.model.errors import BackendError


def main(folder: str) -> int:
    """Print the time. Returns the exit status."""
    die_with_parent(os.getppid())
    try:
        survey = CheckpointDirectory(Path(folder)).survey()
    except BackendError:
        return 1
    times = [one.changed_at.timestamp() for one in survey.checkpoints if one.is_ended]
    json.dump(max(times, default=0.0), sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
