"""Evaluation of what was read: modes, advice that is kept, what is built, proven and removed."""
