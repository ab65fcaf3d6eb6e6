"""Maps tracebacks, coverage data, and the cost of compiled programs to fragment lines."""
