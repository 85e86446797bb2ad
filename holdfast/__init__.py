"""Holdfast keeps training jobs running through hardware failure."""

__version__ = "0.1.0"
