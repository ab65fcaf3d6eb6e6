"""Loomax: weaves fragments into standalone training packages."""

__version__ = "0.1.0"
