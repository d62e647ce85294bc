"""One rank of a build: ``mpiexec -n N python -m sds.organizer.parallel N``."""

from sds.home import become_own_process

# Before HDF5 is loaded, on whatever node: what is read is the original.
become_own_process()

from sds.organizer.parallel.rank_main import main  # noqa: E402

main()
