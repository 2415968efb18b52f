"""Converters: each module turns one source into the folder layout the host frameworks read."""
