"""Jobs in the format of the HyperPod CLI."""
