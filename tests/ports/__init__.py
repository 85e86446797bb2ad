"""Fakes of the ports, and the contracts that fakes and adapters pass."""
