"""Requested clusters, stored in SQLite or PostgreSQL."""
