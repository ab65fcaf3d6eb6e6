"""Python text as the weaver holds it: trees, scopes, the origin of every character, formatting."""
