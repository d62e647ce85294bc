"""Selections, and what reading them from striped storage touches."""
