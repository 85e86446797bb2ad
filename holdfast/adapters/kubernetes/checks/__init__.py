"""Deep health checks as Kubernetes Jobs."""
