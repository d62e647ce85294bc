"""Take one reorganization from request to published replica, whichever organizer builds it.

The order of the steps is what makes the promises true: the replica is written under a temporary
name in the directory where it will lie, synced, compared with the original, and only then renamed.
The original is opened read-only and without a lock. A kill between any two steps leaves a staged
file and a journal, which the next build of the same plan continues, or
:func:`sds.organizer.journal.recover` removes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote

from sds.atomic_file import sync_directory
from sds.errors import (
    BuildInterruptedError,
    BusyError,
    ConfigurationError,
    FileMissingError,
    InsufficientSpaceError,
    LayoutError,
    PermissionDeniedError,
    SdsError,
    SdsValueError,
    SourceChangedError,
    VerificationError,
)
from sds.files import canonical_path
from sds.geometry import Box, check_order
from sds.geometry.least_memory import DEFAULT_MEMORY_BYTES
from sds.geometry.replica_layout import parse_region
from sds.hdf5.columns import describe_table
from sds.hdf5.dataset import describe_dataset
from sds.hdf5.identity import settled_identity, source_identity, trusted_directories
from sds.home import is_switched_off
from sds.organizer.journal import (
    Journal,
    journal_directory,
    open_journal,
    plan_digest,
    recover,
    require_unused,
    staged_name,
)
from sds.organizer.parallel.mpi_builder import MpiCopier, MpiSorter
from sds.organizer.plans.reorganization_plan import (
    ReorganizationPlan,
    ReorganizationRequest,
    Source,
    check_reorganizable,
)
from sds.organizer.plans.segment_plan import SegmentPlan
from sds.organizer.plans.sort_plan import SortPlan, plan_sort
from sds.organizer.protocol import load_organizer
from sds.organizer.replica_file.filters import (
    compresses,
    filter_name,
    format_filters,
    parse_filters,
)
from sds.organizer.replica_file.replica import describe_replica, stored_plan
from sds.organizer.space import free_space_bytes
from sds.organizer.verify import verify_replica
from sds.redirect.launch.connector import is_switched_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sds.geometry import SegmentList
    from sds.geometry.replica_layout import Filter, ReplicaLayout
    from sds.home import Home
    from sds.organizer.progress import AnyPlan, DatasetPlan, Progress
    from sds.organizer.protocol import Builder
    from sds.organizer.replica_file.replica import Replica

PlanT = TypeVar("PlanT", ReorganizationPlan, SegmentPlan, SortPlan)

_MAX_STEM = 80
# What a disk that is full, over quota or over the limit of file sizes answers.
_NO_SPACE = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def replica_path(
    home: Home, source: Path, dataset: str, layout: ReplicaLayout, extent: Sequence[int]
) -> Path:
    """Return where the replica of a dataset lies where no other place is named.

    One directory per source, named by a hash of its path. The names of the files are for people;
    checksums of the dataset's path, and of what is stored how, keep those apart that look the same.

    Parameters
    ----------
    extent
        Of the whole source.
    """
    name = _replica_name(source, dataset, layout, extent)
    return home.replicas / _directory_name(source) / name


def _directory_name(source: Path) -> str:
    """Return 32 hex digits for the path of a source."""
    return hashlib.sha256(os.fsencode(source)).hexdigest()[:32]


def _quoted(name: str, safe: str = "") -> str:
    """Return a name as a part of file names, also one of bytes that are not UTF-8."""
    return quote(name, safe=safe, errors="surrogateescape")


def _replica_name(source: Path, dataset: str, layout: ReplicaLayout, extent: Sequence[int]) -> str:
    axes = "_".join(map(str, layout.order))
    if layout.sort is not None:
        axes = "sorted_" + _quoted(layout.sort.key)[:_MAX_STEM]
    label = _quoted(dataset.strip("/")).replace("%2F", ".")[:_MAX_STEM]
    tag = hashlib.sha256(dataset.encode(errors="surrogateescape")).hexdigest()[:8]
    stem = _quoted(source.stem, safe=" +@,=")[:_MAX_STEM]
    kind = _kind_name(layout, extent)
    return f"{stem}-{label}-{tag}-{axes}{kind}.h5"


def _kind_name(layout: ReplicaLayout, extent: Sequence[int]) -> str:
    """Return what the name says of storage and region; nothing where contiguous and whole."""
    partial = layout.region != Box.whole(extent)
    if layout.sort is not None:
        columns = json.dumps(asdict(layout.sort), sort_keys=True)
        return f"-{hashlib.sha256(columns.encode()).hexdigest()[:8]}"
    if layout.chunk_shape is None and not partial and layout.segments is None:
        return ""
    fields = asdict(layout)
    del fields["sort"]  # names are older than it
    words = []
    if layout.segments is None:
        del fields["segments"]  # and than these
    else:
        words += ["tiles", "x".join(map(str, layout.segments.tile_shape))]
    if layout.chunk_shape is not None:
        words.append("x".join(map(str, layout.chunk_shape)))
        words += [filter_name(step) for step in layout.filters]
    if partial and layout.segments is None:
        words.append("part")
    said = _quoted("-".join(words))[:_MAX_STEM]
    content = json.dumps(fields, sort_keys=True)
    return f"-{said}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def plan_reorganization(
    file: str | os.PathLike[str],
    dataset: str,
    *,
    order: Sequence[int],
    home: Home,
    chunks: Sequence[int] | Literal["auto", "contiguous"] | None = None,
    filters: str | Sequence[Filter] = "none",
    region: str | Box | None = None,
    segments: SegmentList | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    output: Path | None = None,
    organizer: str | None = None,
) -> DatasetPlan:
    """Return what a reorganization would do; writes nothing.

    Waits, where the source was written less than two seconds ago, until it was not.

    Parameters
    ----------
    order
        Replica axis i is source axis ``order[i]``.
    chunks
        Chunk shape in the axes of the replica; ``"auto"``: see
        :func:`sds.geometry.replica_layout.automatic_chunk_shape`; None: contiguous, or ``"auto"``
        where there are filters.
    filters
        Of the chunks; text as in :func:`sds.organizer.replica_file.filters.parse_filters`.
    region
        The box of the source to copy, or the text of one such as ``[0:100, :, :]``; None: all.
    segments
        The tiles of the source to copy, and nothing else; None: all, or the region.
    output
        Where the replica shall lie; in the home where None.
    organizer
        Which is to build it; None: "segmenter" where segments are named, else "transposer".

    Raises
    ------
    FileMissingError, DatasetNotFoundError, NotHdf5Error, ...
        If there is no such dataset.
    LayoutError, SelectionError, UnsupportedError, ConfigurationError, NotFoundError
        If it cannot be reorganized in that way, or the organizer is not installed.
    SdsValueError
        If something else lies at `output`.
    SourceChangedError
        If a program is writing the source.
    """
    _refuse_connector()
    chosen = load_organizer(organizer or ("transposer" if segments is None else "segmenter"))
    found = describe_dataset(canonical_path(Path(file).expanduser()), dataset)
    path = Path(canonical_path(found.file))  # an external link may lead elsewhere
    identity = settled_identity(path, trusted=trusted_directories(home))
    described = describe_dataset(path, found.path)
    check_reorganizable(described)
    axes = check_order(order, len(described.extent))
    if isinstance(filters, str):
        filters = parse_filters(filters, described.filters)
    if isinstance(region, str):
        region = parse_region(region, described.extent)
    stored_share = 1.0
    if compresses(filters) and compresses(described.filters):
        # The best that is known: another compressor in another order does about as well.
        stored_share = min(1.0, described.stored_bytes / described.size_bytes)
    request = ReorganizationRequest(
        order=axes,
        output=_named_output(output, home),
        memory_bytes=memory_bytes,
        chunks=chunks if chunks is None or isinstance(chunks, str) else tuple(chunks),
        filters=tuple(filters),
        region=region,
        segments=segments,
        stored_share=stored_share,
    )
    plan = chosen.plan(Source(description=described, identity=identity), request)
    if plan.layout.segments != segments:
        message = f"organizer {plan.organizer!r} gathers no tiles: leave segments, or it, out"
        raise LayoutError(message)
    if output is None:
        # Only the plan knows the layout that the request comes to.
        place = replica_path(home, path, described.path, plan.layout, described.extent)
        plan = replace(plan, output=place)
    check_output(plan)
    return plan


def plan_sorting(
    file: str | os.PathLike[str],
    table: str,
    *,
    key: str,
    home: Home,
    columns: Sequence[str] | None = None,
    memory_bytes: int = DEFAULT_MEMORY_BYTES,
    output: Path | None = None,
) -> SortPlan:
    """Return what sorting the rows of a table would do; writes nothing.

    Waits as :func:`plan_reorganization` does.

    Parameters
    ----------
    table
        HDF5 path of a one-dimensional dataset of compound type, or of a group of equally long
        one-dimensional datasets.
    key
        The column to sort by.
    columns
        What the replica is to hold besides; None: all columns that can be copied.
    output
        Where the replica shall lie; in the home where None.

    Raises
    ------
    FileMissingError, DatasetNotFoundError, NotHdf5Error, ...
        If there is no such table or column.
    UnsupportedError, ConfigurationError, SdsValueError
        If it cannot be sorted by that column, or something else lies at `output`.
    SourceChangedError
        If a program is writing the source.
    """
    _refuse_connector()
    found = describe_table(canonical_path(Path(file).expanduser()), table, like=key)
    path = Path(canonical_path(found.file))  # an external link may lead elsewhere
    identity = settled_identity(path, trusted=trusted_directories(home))
    plan = plan_sort(
        describe_table(path, found.path, like=key),
        identity,
        key=key,
        columns=columns,
        memory_bytes=memory_bytes,
        output=_named_output(output, home),
    )
    if output is None:
        place = replica_path(home, path, plan.dataset_path, plan.layout, plan.extent)
        plan = replace(plan, output=place)
    check_output(plan)
    return plan


def _refuse_connector() -> None:
    """Raise ConfigurationError where what is read here could come from a replica."""
    if is_switched_on(os.environ) and not is_switched_off(os.environ):
        message = (
            "this process runs under the SDS connector, which could answer from a replica where "
            "the original must be read: run it with HDF5_VOL_CONNECTOR=native, or SDS_DISABLE=1"
        )
        raise ConfigurationError(message)


def _named_output(output: Path | None, home: Home) -> Path:
    """Return the absolute path of an output; ``.`` where SDS is to place it."""
    if output is not None:
        home.refuse_own(output)
    return Path() if output is None else Path(os.path.realpath(output.parent)) / output.name


def check_output(plan: AnyPlan) -> bool:
    """Return whether the output holds an older replica, which the new one is to replace.

    Raises
    ------
    SdsValueError
        If what lies there is anything but a replica of the same dataset in the same layout.
    """
    output = plan.output
    if not os.path.lexists(output):
        return False
    try:
        found = describe_replica(output)
    except (SdsError, OSError) as error:
        if _is_name_of_ours(plan):
            return True  # a damaged replica; no one else writes there
        problem = f"is no replica that could be replaced ({error})"
    else:
        of_same = (found.source_path, found.dataset_path) == (plan.source_path, plan.dataset_path)
        # A table that grew since is sorted anew: the number of its rows is no choice of layout.
        sorted_alike = found.sort is not None and found.sort == plan.layout.sort
        if of_same and (sorted_alike or found.layout == plan.layout):
            return True
        problem = f"is the replica of {found.source_path}:{found.dataset_path}{_kind_of(found)}"
    message = f"{output} exists and {problem}: name another file, or remove it first"
    raise SdsValueError(message)


def _kind_of(found: Replica) -> str:
    """Return what tells a replica from others of its dataset, in words."""
    if found.sort is not None:
        return f" with {', '.join(found.sort.columns)} sorted by {found.sort.key}"
    partial = found.region != Box.whole(found.extent) and found.segments is None
    chunked = found.chunk_shape is not None
    axes = ",".join(map(str, found.order))
    part = f" {found.region}" if partial else ""
    if found.segments is not None:
        shape = "x".join(map(str, found.segments.tile_shape))
        part = f", {len(found.segments.tiles)} tiles of {shape},"
    return f"{part}{', chunked,' if chunked else ''} in order {axes}"


def _is_name_of_ours(plan: AnyPlan) -> bool:
    """Return whether the output has the name that SDS itself gives this replica."""
    name = _replica_name(plan.source_path, plan.dataset_path, plan.layout, plan.extent)
    directory = _directory_name(plan.source_path)
    return (plan.output.parent.name, plan.output.name) == (directory, name)


def _still_good(plan: AnyPlan, progress: Progress | None) -> Replica | None:
    """Return the replica at the output where it is whole and of the source as it is now."""
    try:
        found = describe_replica(plan.output)
    except (SdsError, OSError):
        return None
    if found.source_identity != plan.source_identity:
        return None
    return found if verify_replica(plan.output, progress=progress).ok else None


def reorganize(
    plan: AnyPlan,
    *,
    home: Home,
    rebuild: bool = False,
    n_ranks: int = 1,
    progress: Progress | None = None,
) -> Replica:
    """Build, verify and publish the replica of a plan; returns its description.

    A replica of the same source, unchanged, that lies there already and passes its checksums is
    returned as it is, unless `rebuild`. A build of the same plan that was killed is continued.

    Parameters
    ----------
    n_ranks
        Processes that copy or sort, and compare: where there are several, as ranks of an MPI
        program that is started for it.

    Raises
    ------
    SourceChangedError
        If the source is not, or no longer, what the plan was made for. Nothing is published.
    VerificationError
        If the replica on disk differs from the source. Nothing is published.
    InsufficientSpaceError
        If the disk is too full; names the bytes needed. What was written is removed.
    PermissionDeniedError
        If the directory cannot be written.
    BusyError
        If another process is building this very replica.
    SdsValueError
        If something else lies at the output, or several ranks are to run an organizer of another
        package.
    BuildInterruptedError
        If the ranks ended. The next build of the same plan goes on from what is on disk, but for
        sorts, which begin anew.
    """
    if isinstance(plan, SortPlan):
        from sds.organizer.reorganizers.sorter import Sorter  # noqa: PLC0415  (h5py)

        sorter: Builder[SortPlan] = Sorter()
        if n_ranks > 1:
            plan, sorter = plan.in_runs(), MpiSorter(n_ranks)
        return _reorganize(plan, sorter, home=home, rebuild=rebuild, progress=progress)
    organizer: Builder[Any] = load_organizer(plan.organizer)
    if n_ranks > 1:
        if plan.organizer not in MpiCopier.ORGANIZERS:
            message = f"organizer {plan.organizer!r} works alone: leave out n_ranks={n_ranks}"
            raise SdsValueError(message)
        organizer = MpiCopier(n_ranks)
    return _reorganize(plan, organizer, home=home, rebuild=rebuild, progress=progress)


def _reorganize(
    plan: PlanT,
    builder: Builder[PlanT],
    *,
    home: Home,
    rebuild: bool,
    progress: Progress | None,
) -> Replica:
    """Carry out a plan with the builder of its kind, and publish the replica."""
    _check_source(plan)
    replaces = check_output(plan)
    if replaces and not rebuild:
        existing = _still_good(plan, progress)
        if existing is not None:
            return existing
    _make_directories(plan, home)
    recover(home)
    digest = plan_digest(plan)
    staged = plan.output.parent / staged_name(digest)
    with open_journal(journal_directory(home) / f"{digest}.json") as journal:
        try:
            _stage(plan, staged, journal)
            replica = builder.execute(plan, staged, checkpoint=journal, progress=progress)
            _check_staged(builder, replica, plan, progress)
            _check_source(plan)
            _publish(plan, staged, replaces=replaces)
        except BusyError:
            raise  # ranks of an earlier build write what is there
        except BuildInterruptedError:
            if not journal.steps_done:
                journal.discard()
            raise  # the next build goes on from there
        except Exception as error:
            journal.discard()
            explained = _explained(error, plan)
            if explained is None:
                raise
            raise explained from error
        # An interrupt keeps the staged file: the next build goes on from there.
        journal.discard()
    return describe_replica(plan.output)


def _check_source(plan: AnyPlan) -> None:
    """Raise SourceChangedError unless the source is the file that the plan was made for."""
    difference = plan.source_identity.difference(source_identity(plan.source_path))
    if difference:
        message = (
            f"{plan.source_path} changed while its replica was made ({difference}): the replica "
            "is abandoned; try again when the program that writes it has finished"
        )
        raise SourceChangedError(message)


def _make_directories(plan: AnyPlan, home: Home) -> None:
    """Create the home and, within it, the directory of the replica, private to this account."""
    home.create()
    inside = plan.output.is_relative_to(home.replicas)
    try:
        journal_directory(home).mkdir(mode=0o700, exist_ok=True)
        if inside:
            plan.output.parent.mkdir(mode=0o700, exist_ok=True)
    except PermissionError as error:
        raise _not_writable(Path(error.filename)) from error
    if not plan.output.parent.is_dir():
        message = f"there is no directory {plan.output.parent}: create it, or name another"
        raise FileMissingError(message)


def _stage(plan: AnyPlan, staged: Path, journal: Journal) -> None:
    """Leave at `staged` what an earlier build of this plan wrote, else a new, empty file."""
    noted = json.dumps(plan.to_json())
    if journal.can_continue(plan):
        require_unused(staged)
        if journal.roll_back() and stored_plan(staged) == noted:
            return
    staged.unlink(missing_ok=True)
    _check_space(plan)
    journal.begin(plan, staged)
    descriptor = os.open(staged, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    journal.created()


def _check_space(plan: AnyPlan) -> None:
    """Raise InsufficientSpaceError where the disk cannot hold the replica.

    The size of chunks that are compressed for the first time is unknown: the copy looks at the
    space as it goes.
    """
    if compresses(plan.layout.filters) and not compresses(plan.source_filters):
        return
    free_bytes = free_space_bytes(plan.output.parent)
    if free_bytes < plan.space_needed_bytes:
        raise _no_space(plan, free_bytes)


def _no_space(plan: AnyPlan, free_bytes: int) -> InsufficientSpaceError:
    return InsufficientSpaceError(
        f"the replica needs {plan.space_needed_bytes} bytes in {plan.output.parent}, where this "
        f"account has {free_bytes} (a quota may allow fewer): "
        "free some, or name a file on another disk as the output"
    )


def _not_writable(path: Path) -> PermissionDeniedError:
    return PermissionDeniedError(
        f"may not write {path}: name another output, or set SDS_HOME to a directory that you own"
    )


def _check_staged(
    builder: Builder[PlanT],
    replica: Replica,
    plan: PlanT,
    progress: Progress | None,
) -> None:
    """Raise VerificationError unless every byte of the staged replica is that of the source."""
    report = builder.verify(replica, plan, progress=progress)
    if not report.ok:
        _check_source(plan)  # the better reason, where it is the reason
        filters = plan.layout.filters
        remedy = f"; is one of {format_filters(filters)} lossy?" if filters else ""
        message = (
            f"the replica that was built differs from {plan.source_path}:{plan.dataset_path} and "
            f"is not published: {'; '.join(report.problems)}; check memory and disk{remedy}"
        )
        raise VerificationError(message)


def _publish(plan: AnyPlan, staged: Path, *, replaces: bool) -> None:
    """Give the staged file its name, durably; never in place of anything but a replica of ours."""
    if replaces:
        staged.replace(plan.output)
    else:
        try:
            os.link(staged, plan.output)  # unlike a rename, refuses where something appeared
        except FileExistsError as error:
            message = f"{plan.output} appeared during the build: name another file, or remove it"
            raise SdsValueError(message) from error
        except OSError as error:
            if error.errno not in {errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK}:
                raise
            staged.rename(plan.output)  # a file system without hard links
        else:
            staged.unlink()
    sync_directory(plan.output.parent)


def _explained(error: Exception, plan: AnyPlan) -> SdsError | None:
    """Return the error of SDS for one of the system; None where it speaks for itself."""
    if isinstance(error, SdsError) or not isinstance(error, OSError):
        return None
    if isinstance(error, PermissionError) or error.errno == errno.EROFS:
        return _not_writable(plan.output.parent)
    if error.errno in _NO_SPACE:
        return _no_space(plan, free_space_bytes(plan.output.parent))
    return None
