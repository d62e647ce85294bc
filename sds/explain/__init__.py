"""What one read of a dataset touches and costs, in layouts that are or could be."""
