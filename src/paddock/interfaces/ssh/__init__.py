"""The SSH gateway: a plain `ssh` client gets into a sandbox through it."""
