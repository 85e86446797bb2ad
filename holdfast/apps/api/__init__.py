"""The process of the API."""
