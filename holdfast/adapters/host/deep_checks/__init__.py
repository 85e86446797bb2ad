"""The parts of a node's deep health check, one file each; ``table`` has a row for each of them."""
