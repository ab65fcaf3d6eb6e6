"""What `gen loc` measures."""
