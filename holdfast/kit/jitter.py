"""Random numbers that keep clients from acting at the same time."""

from random import SystemRandom
from typing import Final

JITTER: Final = SystemRandom()
"""Has no state that a program may seed or a fork would copy."""
