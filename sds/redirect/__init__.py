"""The client side: how programs are traced and redirected, without a server.

``vol/`` holds the sources of the HDF5 connector, ``plugin/`` (where SDS is installed) the built
one. :mod:`~sds.redirect.connector` says how it is switched on, :mod:`~sds.redirect.probe` whether
a program can load it, :mod:`~sds.redirect.activate` starts programs under it,
:mod:`~sds.redirect.shell_session` switches it on in a shell, and :mod:`~sds.redirect.doctor` tells
why a dataset is or is not redirected.
"""
