"""Saves each Python that a test starts processor time; Python imports this by its name.

Most of these processes import modules and end soon: next to nothing of what they have is garbage.
With this, a rank with PyTorch needs a third less.
"""

import atexit
import gc
import os
import sys

gc.set_threshold(100_000)
atexit.register(gc.freeze)  # Python would search what was imported for garbage, twice

_HERE = os.path.dirname(__file__)
_OWN = os.path.normpath(os.path.join(_HERE, *[os.pardir] * 3, ".venv"))
_IN_PODS = "/start"  # where jobs on real nodes mount this folder
if sys.prefix == _OWN or _HERE == _IN_PODS:  # environments of other frameworks may need Triton
    sys.modules["triton"] = None  # type: ignore[assignment]  # DDP would import it, for GPUs
