"""The SDK for programs without an event loop; written by scripts/blocking.py."""
