"""Marks of states in tables."""

from typing import Final

PLANNED: Final = "(planned)"
"""Mark of phases of planned work, such as a requested reboot."""
