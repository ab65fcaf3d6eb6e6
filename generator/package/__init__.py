"""Lays definitions out into the files of a package, and renders its other files."""
