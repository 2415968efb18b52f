"""Exact resume: a training that was interrupted gives the same results, bit for bit, as one that was not."""
