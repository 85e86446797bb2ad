"""Observe, decide, act, record. No SDK, no sleep, no clock of its own."""
