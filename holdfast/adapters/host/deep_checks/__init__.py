"""Parts of the deep health check of a node, one module each; ``table`` registers them."""
