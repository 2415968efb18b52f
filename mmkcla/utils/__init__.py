"""Helpers that any part may use; they import nothing else of this package but the error class."""
