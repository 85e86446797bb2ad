"""Text of planned work in tables."""

from typing import Final

PLANNED: Final = "(planned)"
"""Follows phases of planned work, such as a requested reboot."""
