"""Fakes, builders and contract tests; public, so that plug-ins are tested with them, too."""
