"""Stereo depth: model, data, transforms, metric and pictures; see docs/stereo.md."""
