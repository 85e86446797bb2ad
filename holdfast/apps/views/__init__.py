"""Views of nodes, jobs, runs and goodput for commands, API and console, on every platform."""
