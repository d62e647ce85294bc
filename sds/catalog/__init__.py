"""The catalog: what SDS has seen, advised, built and done, in one database."""
