"""What gen does for a person: thin callers of the pure core, and all that reads or writes a disk."""
