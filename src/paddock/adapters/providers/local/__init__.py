"""Sandboxes on this host: OCI bundles run by crun, runc or runsc."""
