"""The operators that weave fragments into a package: fill, splice, thread and link, and the layers of a pattern."""
