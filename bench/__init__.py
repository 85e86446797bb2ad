"""Measurements against goals; ``python -m bench`` runs them, ``python -m bench NAME`` one."""
