"""The operators fill, splice and link, and the layers of a pattern."""
