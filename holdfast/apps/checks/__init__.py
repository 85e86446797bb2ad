"""Health checks of nodes and of pairs of nodes."""
