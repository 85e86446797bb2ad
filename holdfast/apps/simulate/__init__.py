"""Simulation of training runs under faults: the engine in simulated time."""
