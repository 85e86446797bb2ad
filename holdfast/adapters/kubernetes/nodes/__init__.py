"""Kubernetes nodes: marks, drain, checks of drift, reports, leadership."""
