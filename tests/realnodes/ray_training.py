"""Trains with ``train.py``, a rank in an actor of Ray on each worker.

Exits with 1 as soon as a rank fails. Without ``ATTEMPT``, each run is another attempt: pods of a
RayJob that its operator starts again do not know that they belong to one.
"""

import os
import pathlib
import runpy
import sys
import time

import ray

_CONNECT_S = 120
_VARIABLES = ("FOLDER", "RANKS", "SAVES", "HOLDFAST_CHECKPOINT_DIR")


@ray.remote(num_cpus=1)
class Rank:
    def train(self) -> None:
        sys.path.append("/packages")  # has PyTorch; what Ray needs is found before it
        runpy.run_path("/shared/train.py")


def connect() -> None:
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            ray.init(address="auto")
        except ConnectionError:  # the head starts at the same time
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def attempt() -> str:
    if "ATTEMPT" in os.environ:
        return os.environ["ATTEMPT"]
    folder = pathlib.Path(os.environ["FOLDER"])
    number = 1 + len(list(folder.glob("began-*")))
    (folder / f"began-{number}").touch()
    return str(number)


connect()
known = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
known["ATTEMPT"] = attempt()
ranks = []
for rank in range(int(os.environ["RANKS"])):
    variables = {**known, "RANK_OF": f"{os.environ['JOB']}/{rank}"}
    ranks.append(Rank.options(runtime_env={"env_vars": variables}).remote())
ray.get([one.train.remote() for one in ranks])
