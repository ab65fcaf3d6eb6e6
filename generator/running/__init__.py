"""Maps what runs recorded to fragment lines: tracebacks, coverage, and the cost of compiled programs."""
