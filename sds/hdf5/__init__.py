"""HDF5 files as SDS sees them: datasets, chunks, codecs, stripes, and which file it is."""
