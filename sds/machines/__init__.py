"""Machines that are described in files, and fitted to reads that were timed on them.

The simulator predicts what reads take on storage whose build is known. Here is what leads there:
the description as a file (`machine_file`), timed reads as a file (`timed_reads`), how to time some
(`measuring`), and how far the fitted machine errs (`fitting`).
"""
