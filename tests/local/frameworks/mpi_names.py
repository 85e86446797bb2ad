"""Writes the variables by which scripts know their rank below mpirun, and the rank of MPI."""

import json
import os
import sys
from pathlib import Path

from mpi4py import MPI

PREFIXES = ("OMPI_COMM_WORLD_", "PMI_RANK", "PMI_SIZE", "MPI_LOCAL")
names = {name: text for name, text in os.environ.items() if name.startswith(PREFIXES)}
world = MPI.COMM_WORLD
found = {"names": names, "size": world.Get_size(), "sum": world.allreduce(1)}
rank = names["OMPI_COMM_WORLD_RANK"]
Path(sys.argv[1], f"{sys.argv[2]}-{rank}").write_text(json.dumps(found), encoding="utf-8")
