"""What commands, API and console show: nodes, jobs, runs and goodput, on every platform."""
