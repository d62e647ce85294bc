"""Measure a file system, and fit cost models and engine parameters to it."""
