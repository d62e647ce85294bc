"""REST routes outside the table of `sds.server.rest`: the data of figures."""
