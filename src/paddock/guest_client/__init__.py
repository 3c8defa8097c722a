"""The one client of the guest: everything that happens inside a sandbox goes through it."""

from paddock.guest_client.client import Guest

__all__ = ["Guest"]
