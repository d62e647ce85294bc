"""Explanation of one read: its footprint and cost, in existing and hypothetical layouts."""
