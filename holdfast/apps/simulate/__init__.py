"""Simulated training runs under faults: the engine in simulated time."""
