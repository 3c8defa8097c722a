"""A program that keeps what it has counted nowhere but in its memory."""

COUNTER = """python3 -c 'import sys; n = 0
for line in sys.stdin: n += int(line); print(n, flush=True)'"""
"""Adds up the lines that it reads, and says the sum after each."""
