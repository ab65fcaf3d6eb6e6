"""All that reads or writes a disk for gen: projects, locks, packages."""
