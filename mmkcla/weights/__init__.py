"""Weights: safe loading, matching with a model, and conversion from other projects."""
