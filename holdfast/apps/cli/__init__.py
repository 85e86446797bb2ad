"""The commands that people type; one file each, loaded when it is called."""
