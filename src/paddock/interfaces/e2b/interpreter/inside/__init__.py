"""What runs in a sandbox: a small server that gives code to Jupyter kernels.

It is packed into one file and started by the sandbox's own Python, which has `ipykernel`,
`jupyter_client` and `tornado`; nothing of it is imported by the control plane.
"""
