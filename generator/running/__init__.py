"""What runs, told in fragment lines: tracebacks, coverage, and the cost of compiled programs."""
