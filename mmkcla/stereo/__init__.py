"""Stereo depth: model, data, transforms, metric and pictures; docs/stereo.md."""
