"""The Kubernetes platform: one client for all, the controller's backend, the agent's report."""
