"""Jobs as HyperPod's command line has them."""
