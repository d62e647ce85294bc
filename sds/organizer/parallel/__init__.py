"""Builds by the ranks of an MPI program, which one process starts and follows."""
