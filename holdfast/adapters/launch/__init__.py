"""Connections between the launchers of a job and its coordinator."""
