"""Every error that SDS raises, in one tree.

::

    SdsError
    ├── SdsValueError (ValueError)             an argument that cannot be right
    │   ├── SelectionError                     a selection outside its dataset, or unreadable
    │   ├── LimitError                         more than a stated limit allows
    │   ├── LayoutError                        an axis order, striping or RAID that cannot exist
    │   └── ConfigurationError                 a setting or environment that cannot work
    ├── NotFoundError (LookupError)            no such dataset, replica, job, ...
    │   ├── DatasetNotFoundError
    │   └── FileMissingError (FileNotFoundError)
    ├── FormatError (ValueError)               a file that is not what it should be, or damaged
    │   ├── NotHdf5Error
    │   ├── FormatVersionError                 of a version that this SDS does not read
    │   └── TruncatedFileError                 ends before its data
    ├── UnsupportedError                       a dataset or type that SDS does not reorganize
    │   └── MissingExtraError                  a package of an extra that is not installed
    ├── SourceChangedError                     the original changed while SDS worked on it
    ├── VerificationError                      a replica whose bytes differ from its original
    ├── BuildInterruptedError                  a build whose processes ended; it can be continued
    ├── InsufficientSpaceError (OSError)       a disk without room, with the bytes needed
    │   └── OverBudgetError                    more than a budget of replicas allows
    ├── PermissionDeniedError (PermissionError)
    ├── UnreachableError (TimeoutError)        a file whose file system does not answer
    ├── RankDeficientError (ValueError)        a fit whose columns do not vary independently
    ├── CatalogError                           database of another revision, or on a network disk
    ├── ServerError                            the server answered with an error
    │   ├── ServerUnreachableError (ConnectionError)
    │   └── RequestTimeoutError (TimeoutError) a question that took longer than the server allows
    └── BusyError                              another SDS process holds the catalog
        └── QueueFullError                     as many jobs wait as the server takes

Each class also inherits the builtin it refines. A message says what happened, the value, and what
to do about it.
"""

from __future__ import annotations


class SdsError(Exception):
    """Base of every error that SDS raises on purpose."""


class SdsValueError(SdsError, ValueError):
    """An argument that cannot be right."""


class LimitError(SdsValueError):
    """More than a stated limit allows: time, memory or number."""


class SelectionError(SdsValueError):
    """A selection outside its dataset, or one that cannot be read."""


class LayoutError(SdsValueError):
    """An axis order, striping or RAID geometry that cannot exist."""


class ConfigurationError(SdsValueError):
    """A setting or an environment that cannot work."""


class NotFoundError(SdsError, LookupError):
    """No such dataset, replica, job or table."""


class DatasetNotFoundError(NotFoundError):
    """The file has no dataset of that path."""


class FileMissingError(NotFoundError, FileNotFoundError):
    """There is no such file."""


class FormatError(SdsError, ValueError):
    """A file that is not what it should be, or damaged."""


class NotHdf5Error(FormatError):
    """A file that is not HDF5."""


class FormatVersionError(FormatError):
    """A file of a format version that this SDS does not read."""


class TruncatedFileError(FormatError):
    """A file that ends before its data."""


class UnsupportedError(SdsError):
    """A dataset, type or file system that SDS does not handle."""


class MissingExtraError(UnsupportedError):
    """A package of an extra that is not installed."""


class SourceChangedError(SdsError):
    """The original changed while SDS worked on it."""


class VerificationError(SdsError):
    """A replica whose bytes differ from those of its original."""


class BuildInterruptedError(SdsError):
    """A build whose processes ended before it did; what is on disk is kept, to go on from."""


class InsufficientSpaceError(SdsError, OSError):
    """A disk without room for what was to be written."""


class OverBudgetError(InsufficientSpaceError):
    """A replica that would take more than a budget of replicas allows."""


class PermissionDeniedError(SdsError, PermissionError):
    """A file or directory that this account may not read or write."""


class UnreachableError(SdsError, TimeoutError):
    """A file whose file system does not answer."""


class RankDeficientError(SdsError, ValueError):
    """A regression whose columns do not vary independently."""


class CatalogError(SdsError):
    """A catalog of another revision, damaged, or on a network file system."""


class ServerError(SdsError):
    """The server answered with an error."""


class ServerUnreachableError(ServerError, ConnectionError):
    """No server answers at the address."""


class RequestTimeoutError(ServerError, TimeoutError):
    """A question that took longer than the server allows."""


class BusyError(SdsError):
    """Another SDS process holds the catalog."""


class QueueFullError(BusyError):
    """The queue holds as many jobs as the server takes."""
