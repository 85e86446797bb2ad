"""``holdfast clusters``: creates, changes, lists and deletes clusters."""
