"""The words of Holdfast: frozen dataclasses and enums, nothing that acts."""
