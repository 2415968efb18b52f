"""Data sets, the checks before a run, converters, and transforms for the hosts' pipelines."""
