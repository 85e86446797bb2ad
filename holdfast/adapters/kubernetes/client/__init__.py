"""The client of the Kubernetes API: requests, watches, exec, credentials."""
