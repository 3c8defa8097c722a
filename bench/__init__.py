"""`make bench`: what the targets table promises, measured next to Docker and plain tools."""
