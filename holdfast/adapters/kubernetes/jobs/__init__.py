"""Training jobs on Kubernetes: the operators run them, Holdfast restarts them as a whole."""
