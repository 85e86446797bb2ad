"""Detectors, one file each: they turn readings into findings."""
