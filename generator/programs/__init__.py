"""What a change to a package means: its programs, traced, compared with those that it had."""
