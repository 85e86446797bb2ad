"""Tests between two nodes: one side serves, the other asks and measures."""
