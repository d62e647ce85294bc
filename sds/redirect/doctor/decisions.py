"""Read the connector's log of decisions (SDS_DEBUG), with a remedy for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# By a part of the reason.
_REMEDIES = {
    "differs from its checksum": "run `sds replicas verify`, then build it anew with "
    "`sds reorganize`",
    "verified with": "build it anew with `sds reorganize`, or read without SDS_VERIFY_READS",
    "may not read it": "ask the owner of the home for read permission, or use a home of your own",
    "there is none": "build a replica with `sds reorganize`, or let `sds advise` say which",
    "changed": "build its replicas anew with `sds reorganize`",
    "written": "open it again once its writer has closed it",
    "missing": "build it anew with `sds reorganize`",
    "damaged": "run `sds replicas verify`, then build it anew with `sds reorganize`",
    "belongs": "give it to the source's owner, or name its owner in SDS_SERVICE_UID",
    "writable": "take write permission from group and others (chmod go-w)",
    "does not name": "build a replica with `sds reorganize`",
    "not that of the table": "build its replicas anew with `sds reorganize`",
    "chunk cache holds": "nothing to do: reads from HDF5's chunk cache are copies; with a smaller "
    "one (rdcc_nbytes) replicas serve",
    "lie in other files": "nothing to do: such datasets are read through HDF5",
    "data transform": "nothing to do: HDF5 computes such reads itself",
    "in the transfer's properties": "nothing to do: such reads are left to HDF5",
    "of another extent": "select in the dataset's own extent",
    "reach outside": "nothing to do: HDF5 says what is wrong with such a read",
    "name a point twice": "name each point of the memory selection once",
    "memory type": "read the dataset's own type, or another integer or float",
    "holds all that is selected": "build a replica of a region that holds it, or of the whole "
    "dataset (`sds reorganize`)",
    "chunks are larger than": "build it anew in chunks of at most 1 MiB (`sds reorganize --chunks "
    "auto`)",
    "serve boxes alone": "build a contiguous replica too (`sds reorganize` without --chunks and "
    "--tiles)",
    "share of the reads": "nothing to do: the replica is being measured",
    "cannot be": "run `sds replicas verify`, then build it anew with `sds reorganize`",
    "could not be read": "run `sds replicas verify`, then build it anew with `sds reorganize`",
    "lacks a filter": "install the filter where HDF5_PLUGIN_PATH names it, or compress the replica "
    "with gzip (`sds reorganize --compress`)",
    "too short for its dataset": "build it anew with `sds reorganize`",
    "too much besides its dataset": "build it anew with `sds reorganize`",
    "no regular file": "build it anew with `sds reorganize`",
    "needs its descriptors": "raise the limit of open files (ulimit -n), or have fewer datasets "
    "with replicas open at a time",
    "failed several times": "run `sds replicas verify`, and look after the disk that it is on",
    "being closed": "nothing to do: HDF5 reads for itself while it ends",
    "replicas in chunks are in use": "nothing to do: replicas in chunks take turns in being open; "
    "contiguous ones (`sds reorganize` without --chunks) are open all the time",
    "tables of other files": "keep fewer files open at a time, or gather fewer tiles of them "
    "(`sds reorganize --min-reads`)",
    "memory that there is": "nothing to do: SDS takes little of a program's memory; contiguous "
    "replicas (`sds reorganize` without --chunks) need less of it",
    "memory is left": "keep fewer datasets open at a time; contiguous replicas (`sds reorganize` "
    "without --chunks) need no such memory",
    "memory is exhausted": "give the program more memory",
    "standard stream": "start the program with its standard streams open",
    "the program's HDF5": "build a contiguous replica too (`sds reorganize` without --chunks)",
    "of another path": "run `sds replicas verify`, which writes it anew",
    "mounted anew": "have it compared again: sds-server does so by itself, else run the same "
    "`sds reorganize` again",
    "being removed": "nothing to do: the file goes",
    "no checksums": "build it anew with `sds reorganize`",
    "is not what the table says": "run `sds replicas verify`",
    "original is predicted": "nothing is wrong: such reads are faster from the original",
    "read by SDS's engine": "nothing is wrong: such reads are faster past HDF5",
    "decoded faster than by HDF5": "nothing is wrong: SDS decodes such chunks",
    "format version": "use one version of SDS for programs and server; `sds replicas verify` "
    "writes the table anew",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A line of the connector's log.

    Attributes
    ----------
    event
        Of a library: ``bound``, ``native`` (not served, runs as without SDS), ``unbound``. Of a
        file: ``table``, ``no-table``, ``dropped``. Of a dataset's reads: ``served``, ``original``,
        ``engine`` (of the original, past HDF5).
    file
        The HDF5 library, or the HDF5 file.
    dataset
        Its path; of a library, where its functions were found.
    reason
        Of a library that is bound, its version.
    """

    event: str
    file: str
    dataset: str
    reason: str


def read_decisions(log: Path) -> tuple[Decision, ...]:
    """Return what the connector wrote into a log; nothing where there is none."""
    if not log.exists():
        return ()
    lines = (line.split("\t") for line in log.read_text(errors="replace").splitlines())
    return tuple(
        Decision(event=words[1], file=words[2], dataset=words[3], reason=words[4])
        for words in lines
        if len(words) == 5  # a killed program may leave part of one
    )


def remedy_for(reason: str) -> str:
    """Return what to do about a reason of the connector's; empty where there is nothing to do."""
    return next((remedy for part, remedy in _REMEDIES.items() if part in reason), "")
