"""One file per detector; each turns readings into findings and knows nothing of remedies' cost."""
