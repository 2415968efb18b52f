"""Weights: reading files safely, matching them with a model, converting those of other projects."""
