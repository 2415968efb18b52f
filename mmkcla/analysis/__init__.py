"""Analyses of layer attentions; see docs/analysis.md."""
