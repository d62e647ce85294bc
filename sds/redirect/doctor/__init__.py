"""Say why reads of a file are or are not redirected."""
