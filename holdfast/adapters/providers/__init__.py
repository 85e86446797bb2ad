"""Owners of machines: clouds, Kubernetes' own provisioners, and whatever a site has of its own."""
