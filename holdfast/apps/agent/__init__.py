"""The node agent: detects faults of one node and reports them."""
