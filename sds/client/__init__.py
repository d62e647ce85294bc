"""Functions for programs: read datasets, lists of regions, and replicas."""
