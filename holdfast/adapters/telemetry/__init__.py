"""How the word of an agent leaves its node: log lines, metrics, CloudWatch."""
