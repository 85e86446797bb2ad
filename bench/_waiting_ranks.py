"""Ranks that only wait; each notes its process. Needs nothing but Python."""

import os
import sys
import time

with open(sys.argv[1], "a", encoding="ascii") as notes:
    notes.write(f"{os.getpid()} {os.environ['RANK']}\n")
while True:
    time.sleep(3600)
