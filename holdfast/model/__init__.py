"""Domain model of Holdfast: frozen dataclasses and enums without behavior."""
