"""Data for the host frameworks: converters that write datasets, transforms for their pipelines."""
