"""What providers share that run on the same host as the control plane, as root."""
