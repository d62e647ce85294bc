"""The HDF5 file of a replica: elements, attributes, filters and checksums."""
