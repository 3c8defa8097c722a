"""Shipped test kits: the provider conformance suite and its reference provider."""
