"""The egress gateway: what sandboxes reach the world through.

A process of its own, so that a restart of the control plane interrupts no connection. It holds no
privilege and no secret of the host: sockets that lie in the sandboxes' networks are handed to it.
"""
