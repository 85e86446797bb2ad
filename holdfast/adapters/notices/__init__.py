"""Delivery of events to other systems and to people."""
