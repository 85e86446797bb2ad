"""SageMaker's cluster operations for clusters of one's own, and who may call them."""
