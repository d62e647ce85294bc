"""Copy a source into a replica, slab by slab."""
