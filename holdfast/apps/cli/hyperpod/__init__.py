"""``holdfast hyperpod``: job commands with HyperPod CLI syntax."""
