"""SageMaker's cluster operations for self-managed clusters, with authentication and roles."""
