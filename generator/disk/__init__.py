"""Reads and writes the disk: projects, locks, packages."""
