"""Loads checkpoints of ``write_ray_train.py``: the latest result of Ray Train's manager."""

from pathlib import Path
from typing import Any

import numpy
from load_digests import Case, report
from write_ray_train import manager


def load(case: Case) -> Any:
    result = manager(case.folder.parent, case.folder.name)[0]._latest_checkpoint_result
    path = Path(result.checkpoint.path)
    files = sorted(path.glob("*.npz"))
    return [path.name, result.metrics, *(dict(numpy.load(one)) for one in files)]


if __name__ == "__main__":
    report(load)
