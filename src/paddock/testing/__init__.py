"""Shipped test kits: the conformance suite, its reference provider, and a scripted model."""
