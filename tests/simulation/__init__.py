"""Random schedules on the simulated platform, and the laws that judge them."""
