"""A package in memory: definitions laid out into files, and what is rendered beside them."""
