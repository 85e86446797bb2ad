"""The machine under the agent: its kernel log, and the files that carry the agent's word."""
