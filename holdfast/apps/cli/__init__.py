"""Commands of the command line, one module each, imported when the command is called."""
