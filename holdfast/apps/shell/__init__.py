"""A shell on a node, by whatever way there is."""
