"""The seams: protocols whose docstrings are the contract."""
