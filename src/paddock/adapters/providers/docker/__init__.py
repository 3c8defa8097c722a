"""Sandboxes as containers of a Docker or Podman engine, on this host or elsewhere."""
