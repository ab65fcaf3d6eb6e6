"""From a config.json to an architecture file."""
