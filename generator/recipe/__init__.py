"""What is asked for: the library of sources, and the architecture and target that select from it."""
