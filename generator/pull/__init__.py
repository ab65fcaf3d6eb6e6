"""Edits of a generated package, carried back to the fragments that its lines came from."""
