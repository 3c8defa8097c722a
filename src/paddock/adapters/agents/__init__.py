"""Agents: how each kind is started and talked to, and what it says in one vocabulary."""
