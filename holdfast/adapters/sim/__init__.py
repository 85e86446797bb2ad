"""The simulated platform: a cluster in simulated time, driven by the real engine."""
