"""Carries edits of a generated package back to the fragments that its lines came from."""
