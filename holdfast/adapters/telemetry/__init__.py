"""Export of an agent's reports: log lines, metrics, CloudWatch."""
