"""What runs in a sandbox: a small server that gives code to Jupyter kernels.

It is packed into one file and started by the sandbox's own Python, which has `ipykernel`,
`jupyter_client` and `tornado`; nothing of it is imported by the control plane.
"""

UNLIMITED = 0
"""As a limit of messages on ZeroMQ's sockets. It is here because the server imports no kernel."""
