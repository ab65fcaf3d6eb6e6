"""Writes the site of `gen view`: packages, fragments and what connects them, as pages that need no server."""
