"""The library of sources, and the architecture and target that select from it."""
