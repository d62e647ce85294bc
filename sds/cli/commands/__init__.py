"""The commands of ``sds``, one module per command group."""
