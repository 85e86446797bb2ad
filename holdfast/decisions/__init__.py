"""The decision core: pure functions from a view of the cluster, a policy and the time to a plan."""
