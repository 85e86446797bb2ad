"""Kubernetes nodes and jobs for commands, and the removal of what Holdfast wrote."""
