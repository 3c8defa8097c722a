"""How the test suite runs: order, time limits, re-runs, leak checks and reports."""
