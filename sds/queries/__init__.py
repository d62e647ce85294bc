"""Queries of tables: conditions, what an answer costs, and the rows by scan or sorted replica."""
