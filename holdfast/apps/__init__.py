"""Processes and commands: wiring, exit codes and the only places that sleep."""
