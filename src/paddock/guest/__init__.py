"""What runs inside a sandbox: commands, files, terminals, supervised processes and durable runs."""
