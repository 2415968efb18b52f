"""Helpers for all parts of the package. They import only the error class from it."""
