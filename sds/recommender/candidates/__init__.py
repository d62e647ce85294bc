"""Layouts that a replica might have, and what reads cost in each."""
