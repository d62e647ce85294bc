"""The client side: how programs are traced and redirected, without a server.

``vol/`` holds the sources of the HDF5 connector, ``plugin/`` (where SDS is installed) the built
one. ``launch/`` switches it on for a shell or a process. ``doctor/`` explains why a dataset is
or is not redirected. The connector decides by `tables`.
"""
