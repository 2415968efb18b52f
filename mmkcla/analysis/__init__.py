"""Analyses of layer attentions; docs/analysis.md."""
