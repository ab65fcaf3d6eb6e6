"""Fits families to checkpoints, and compares packages with their references in transformers."""
