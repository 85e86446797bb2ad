"""Providers of machines: clouds, Kubernetes provisioners and site-specific integrations."""
