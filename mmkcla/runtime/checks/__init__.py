"""Check the settings of a config before a run."""
