"""Cost models: features of a read in, seconds out; how they are fitted and chosen."""
