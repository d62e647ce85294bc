"""Choose the replicas to build: workload, gates, and a search under a budget of space."""
