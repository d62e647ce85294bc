"""The demonstration: two ordinary programs, traced, advised, served and measured."""
