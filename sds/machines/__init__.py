"""Machines that are described in files, and fitted to reads that were timed on them.

The simulator predicts reads on storage whose parameters are known. Here they are found:
the description as a file (`machine_file`), timed reads as a file (`timed_reads`), how to time some
(`measurement`), and how far the fitted machine errs (`fit`).
"""
