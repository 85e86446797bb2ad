"""What speaks to the outside, one protocol or SDK each; adapters do not know each other."""
