"""Network tests between two nodes: one side serves, the other connects and measures."""
