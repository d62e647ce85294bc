"""Advice on layouts: patterns, models and datasets brought together."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from sds.catalog.job_queue import JobQueue
from sds.catalog.records import LIVE_STATES, DatasetFacts, ReplicaState
from sds.errors import LayoutError, SdsError, SdsValueError
from sds.files import canonical_path
from sds.geometry import Box, ReplicaLayout, parse_region
from sds.hdf5.columns import check_key
from sds.hdf5.dataset import describe_dataset
from sds.hdf5.identity import identity_of
from sds.hdf5.rewrite_command import rewrite_command
from sds.mounts import look_at
from sds.organizer.replica_file.filters import parse_filters
from sds.recommender.candidates.dataset_reads import PortfolioSettings
from sds.recommender.candidates.segment_candidates import RecurringTiles
from sds.recommender.portfolio.budget_search import PartBudget
from sds.recommender.portfolio.gates import NoiseGates
from sds.recommender.portfolio.portfolio_selection import choose_portfolio
from sds.recommender.portfolio.striping_advice import advise_stripes
from sds.recommender.portfolio.what_if import what_if, what_if_sorted
from sds.server.operations.advice_reports import Advice, QueriedTable, Rewrite
from sds.server.operations.build_rates import measured_build_rates
from sds.server.operations.dataset_workloads import KnownReads
from sds.server.operations.evaluation.modes import Modes, does_as_much
from sds.server.operations.evaluation.tried_layouts import Attempt, TriedLayouts
from sds.server.operations.recent_reads import RecentReads
from sds.server.operations.replica_budgets import replica_budgets
from sds.server.operations.sort_advice import sample_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sds.catalog.records import Mode
    from sds.catalog.store import Store
    from sds.geometry import Filter, SegmentList
    from sds.hdf5.columns import Table
    from sds.hdf5.dataset import DatasetDescription
    from sds.home import Home
    from sds.recommender.candidates.dataset_reads import DatasetReads
    from sds.recommender.portfolio.sort_keys import TableQueries
    from sds.recommender.portfolio.values import Portfolio
    from sds.recommender.portfolio.what_if import WhatIf
    from sds.server.operations.advice_reports import (
        AdviceRequest,
        RecurringTilesRequest,
        WhatIfRequest,
    )
    from sds.server.operations.dataset_workloads import KnownDataset
    from sds.server.operations.file_system_models import Models
    from sds.server.operations.stages import Progress
    from sds.server.settings import Settings


# Of a file that is damaged h5py raises what comes.
_UNREADABLE = (SdsError, OSError, RuntimeError, KeyError, ValueError, TypeError)
MOST_EVALUATED = 200
"""Datasets, those first that lose most, on which advice is kept ready."""
SHARE_OF_SPACE = 10
"""Without a budget the replicas of mode auto take at most one part of so many of the space."""


Keeps = Literal["always", "if nothing is advised", "never"]
"""When advice is kept in the catalog."""


class Adviser:
    """Gives advice on datasets."""

    def __init__(self, home: Home, store: Store, models: Models, settings: Settings) -> None:
        self._home = home
        self._store = store
        self._models = models
        self._settings = settings

    def _known_reads(self) -> KnownReads:
        """Return what finds the reads of one request: its models share one budget."""
        return KnownReads(self._store, self._models)

    def _sampled(self, request: QueriedTable, *, progress: Progress) -> TableQueries:
        """Return queries with what a sample of their table says of them."""
        progress(0.0, f"sample {request.table}")
        return sample_queries(
            canonical_path(request.file),
            request.table,
            request.queries,
            home=self._home,
            parameters=self._models.io_parameters(request.file),
            build_rates=measured_build_rates(self._store, request.file),
        )

    def advise(self, request: AdviceRequest, *, progress: Progress) -> Advice:
        """Return, and keep, the replicas to build of all datasets and tables, under one budget.

        Errors as of `sds.server.operations.dataset_workloads.KnownReads.of` and
        `sds.server.operations.sort_advice.sample_queries`; SdsValueError where
        nothing is named, or a selection is stated for several datasets.
        """
        if not request.datasets and not request.tables:
            raise SdsValueError("no dataset given: name at least one file or dataset")
        if request.selection is not None and len(request.datasets) > 1:
            raise SdsValueError("state a selection for one dataset at a time, or trace the reads")
        known, tables, notes = self._named(request, progress=progress)
        return self._advise_on(known, tables, notes, budget=request.budget_bytes)

    def advise_all(
        self, *, mode: Mode, may_go: Mapping[tuple[str, str], int], progress: Progress
    ) -> Advice:
        """Return the replicas to build of what was read, of as much as may pay.

        What cannot be looked at is in the notes.

        Parameters
        ----------
        mode
            Of datasets in this mode or one that does more. In auto without ``replica_budget_bytes``
            all replicas together may take a tenth of what they and the free space are, and advice
            is kept only where all is in auto. Reads of patterns that are not read any more do
            not count (`RecentReads`).
        may_go
            Bytes of replicas that may go, by file and path of their datasets: space beside what
            budgets leave. What is advised then is not kept.
        """
        more_bytes = sum(may_go.values())
        modes = Modes(self._store.policies(), self._settings.mode)
        recent = RecentReads.of(self._store, self._settings) if mode == "auto" else None
        reads = KnownReads(self._store, self._models, recent=recent)
        known: list[KnownDataset] = []
        notes: list[str] = []
        stated = {(one.file, one.dataset) for one in self._store.stated_reads()}
        records = [
            record
            for record in sorted(
                self._store.datasets(), key=lambda one: (one.file, one.path) not in stated
            )
            if record.path
            and (
                (record.file, record.path) in stated
                or (
                    (recent is None or (record.last_read_ns or 0) >= recent.since_ns)
                    and 0 < record.elapsed_s >= self._settings.advice_min_s
                )
            )
            and does_as_much(modes.of(record.file, record.path), mode)
        ][:MOST_EVALUATED]
        for i, record in enumerate(records):
            progress(i / len(records), f"rank layouts of {record.file}:{record.path}")
            try:
                found, more = reads.of(
                    record.file,
                    record.path,
                    selection=None,
                    n_reads=None,
                    progress=lambda *_: None,
                )
            except _UNREADABLE as error:
                notes.append(f"{record.file}:{record.path} is left out: {error}")
                continue
            known += found
            notes += more
        budget = None
        if mode == "auto" and self._settings.replica_budget_bytes is None:
            used = self._store.bytes_beside("")
            free = shutil.disk_usage(self._home.replicas.parent).free
            budget = max(0, (used + free) // SHARE_OF_SPACE - used + more_bytes)
        elif more_bytes:
            left = self._budget_left()
            budget = None if left is None else max(0, left + more_bytes)
        if mode == "auto" and not modes.are_all_auto:
            keeps: Keeps = "never"
        else:
            keeps = "if nothing is advised" if more_bytes else "always"
        refuse = self._tried(known) if mode == "auto" else None
        return self._advise_on(
            known, [], notes, budget=budget, may_go=may_go, keeps=keeps, refuse=refuse
        )

    def _tried(self, known: Sequence[KnownDataset]) -> Callable[[str, ReplicaLayout], str]:
        """Return what says why a layout is not built again: it takes no other's space."""
        tried = TriedLayouts(self._store, JobQueue(self._store))
        records = {(one.file, one.path): one for one in self._store.datasets()}
        attempts = {}
        for one in known:
            record = records.get((one.file, one.described.path))
            if record is not None:
                with suppress(SdsError, OSError):  # the evaluator looks again, and puts it off
                    source = look_at(one.file, partial(identity_of, one.file))
                    attempts[one.reads.target] = record, source

        def why(target: str, layout: ReplicaLayout) -> str:
            if target not in attempts:
                return ""
            record, source = attempts[target]
            return tried.objection(Attempt(record, layout, source))

        return why

    def _budget_left(self) -> int | None:
        """Return what ``replica_budget_bytes`` leaves, negative where it is exceeded; or None."""
        budget = self._settings.replica_budget_bytes
        return None if budget is None else budget - self._store.bytes_beside("")

    def _part_budgets(
        self,
        known: Sequence[KnownDataset],
        tables: Sequence[TableQueries],
        may_go: Mapping[tuple[str, str], int],
    ) -> list[PartBudget]:
        """Return what the budgets of policies leave for the datasets and tables at hand."""
        named = [(one.file, one.described.path) for one in known]
        named += [(str(one.table.file), one.table.path) for one in tables]
        found = []
        for budget in replica_budgets(self._store, None):
            left = budget.left_bytes + sum(
                size for (file, path), size in may_go.items() if budget.covers(file, path)
            )
            members = frozenset(i for i, name in enumerate(named) if budget.covers(*name))
            if members:
                found.append(
                    PartBudget(name=budget.source, members=members, budget_bytes=max(0, left))
                )
        return found

    def _advise_on(
        self,
        known: Sequence[KnownDataset],
        tables: Sequence[TableQueries],
        notes: list[str],
        *,
        budget: int | None,
        may_go: Mapping[tuple[str, str], int] | None = None,
        keeps: Keeps = "always",
        refuse: Callable[[str, ReplicaLayout], str] | None = None,
    ) -> Advice:
        """Return, and keep, the replicas to build; `budget` None: what settings and disk leave."""
        if budget is None:
            left = self._budget_left()
            budget = None if left is None else max(0, left)
        free = shutil.disk_usage(self._home.replicas.parent).free
        reads = [each.reads for each in known]
        portfolio = choose_portfolio(
            reads,
            tables=tables,
            budget_bytes=free if budget is None else budget,
            part_budgets=self._part_budgets(known, tables, may_go or {}),
            refuse=refuse,
            gates=NoiseGates.from_total(self._settings.advice_min_s),
            settings=PortfolioSettings(space_s_per_gib=self._settings.advice_min_s_per_gib),
        )
        if budget is not None and portfolio.used_bytes > free:
            notes.append(
                f"{self._home.replicas} has {free} bytes free, fewer than the "
                f"{portfolio.used_bytes} that this takes: make room, or give a smaller budget"
            )
        stripes = advise_stripes(
            [_with_built(each, portfolio) for each in reads],
            directory=str(self._home.replicas),
            n_osts=self._settings.ost_count,
            allowed=self._settings.stripe_advice,
        )
        of_target = {each.reads.target: each for each in known}
        facts = {
            each.reads.target: facts_of_description(each.file, each.described) for each in known
        }
        facts |= {queries.target: facts_of_table(queries.table) for queries in tables}
        is_kept = keeps == "always" or (keeps == "if nothing is advised" and not portfolio.layouts)
        for recommendation in portfolio.of_each() if is_kept else ():
            self._store.add_recommendation(facts[recommendation.target], recommendation)
        return Advice(
            portfolio=portfolio,
            stripes=stripes,
            notes=tuple(dict.fromkeys((*notes, *portfolio.notes))),
            rewrites=tuple(
                Rewrite(
                    target=one.target,
                    chunk_shape=one.rewritten_chunks,
                    seconds_then=one.rewritten_s,
                    command=rewrite_command(
                        of_target[one.target].file,
                        of_target[one.target].described.path,
                        one.rewritten_chunks,
                    ),
                )
                for one in portfolio.datasets
                if one.rewritten_chunks is not None and one.rewritten_s is not None
            ),
        )

    def _named(
        self, request: AdviceRequest, *, progress: Progress
    ) -> tuple[list[KnownDataset], list[TableQueries], list[str]]:
        """Return what is known of the datasets and tables of a request, and notes."""
        reads = self._known_reads()
        found: dict[str, KnownDataset] = {}
        tables: list[TableQueries] = []
        notes: list[str] = []
        n_names = len(request.datasets) + len(request.tables)

        def part(i: int) -> Progress:
            return lambda share, what: progress((i + share) / n_names, what)

        for i, name in enumerate(request.datasets):
            known, more = reads.of(
                name.file,
                name.dataset,
                selection=request.selection,
                n_reads=request.n_reads,
                progress=part(i),
            )
            found.update((each.reads.target, each) for each in known)
            notes += more
        for i, queried in enumerate(request.tables, start=len(request.datasets)):
            tables.append(self._sampled(queried, progress=part(i)))
            for each in self._traced_reads(tables[-1].table, reads):
                found.setdefault(each.reads.target, each)
        return list(found.values()), tables, notes

    def what_if(self, request: WhatIfRequest, *, progress: Progress) -> WhatIf:
        """Return what reads would take with a layout more, or with replicas taken away.

        Raises
        ------
        LayoutError
            If the layout cannot be, or neither it nor a replica is named.
        SdsValueError
            If there are no reads to predict, or a replica is of another dataset; if a sorted
            replica is supposed without queries, or another with them.
        """
        if request.queries or request.sort is not None or request.columns is not None:
            return self._what_if_sorted(request, progress=progress)
        reads = self._known_reads()
        found, notes = reads.of(
            request.file,
            request.dataset,
            selection=request.selection,
            n_reads=request.n_reads,
            progress=progress,
        )
        if not found:
            raise SdsValueError(f"nothing to predict: {'; '.join(notes)}")
        (known,) = found
        add: list[ReplicaLayout] = []
        extent = known.described.extent
        if request.order is not None and request.tiles is not None:
            if request.filtered or request.chunks is not None or request.region is not None:
                raise LayoutError(
                    "tiles are stored contiguously, of no region: leave out chunks, filters and "
                    "the region"
                )
            segments = reads.recurring(
                known.file, known.described, request.tiles, request.min_reads
            )
            add.append(ReplicaLayout.of_tiles(segments, extent, order=request.order))
        elif request.order is not None:
            box = Box.whole(extent)
            add.append(
                ReplicaLayout(
                    order=request.order,
                    chunk_shape=request.chunks,
                    filters=_filters_of(known) if request.filtered else (),
                    region=box if request.region is None else parse_region(request.region, extent),
                )
            )
        elif request.filtered or any(
            given is not None for given in (request.chunks, request.region, request.tiles)
        ):
            raise LayoutError(
                "chunks, filters, region or tiles without an axis order: name that too"
            )
        away = [self._layout_of_replica(n, known) for n in dict.fromkeys(request.without)]
        return what_if(known.reads, add=add, take_away=away, min_reads=request.min_reads)

    def recurring(self, request: RecurringTilesRequest) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments.

        Errors as of `sds.hdf5.dataset.describe_dataset` and `KnownReads.recurring`.
        """
        file = canonical_path(request.file)
        described = describe_dataset(file, request.dataset)
        return self._known_reads().recurring(file, described, request.tiles, request.min_reads)

    def _traced_reads(self, table: Table, reads: KnownReads) -> list[KnownDataset]:
        """Return a compound table as a dataset that is read, where it was; columns have names."""
        file = canonical_path(table.file)
        if not table.is_compound or not self._store.patterns(file, table.path):
            return []
        known, _ = reads.of(
            file, table.path, selection=None, n_reads=None, progress=lambda *_: None
        )
        return known

    def _what_if_sorted(self, request: WhatIfRequest, *, progress: Progress) -> WhatIf:
        """Return what queries would take with a sorted replica more, or with some taken away."""
        if request.sort is None and request.columns is not None:
            raise SdsValueError(
                f"columns {', '.join(request.columns)} without a key: name the column to sort by"
            )
        if not request.queries:
            raise SdsValueError(
                f"a replica sorted by {request.sort} answers queries: state some (--query 'e > 1')"
            )
        others = (
            request.order,
            request.chunks,
            request.region,
            request.tiles,
            request.selection,
            request.n_reads,
        )
        if request.filtered or any(given is not None for given in others):
            raise SdsValueError(
                "queries are answered by sorted replicas: with them name a column to sort by, or "
                "replicas to take away, and no axis order, chunks, region, tiles or selection"
            )
        queried = QueriedTable(file=request.file, table=request.dataset, queries=request.queries)
        queries = self._sampled(queried, progress=progress)
        add = []
        if request.sort is not None:
            check_key(queries.table.column(request.sort), queries.target)
            add.append(_hypothetical_replica(queries, request.sort, request.columns))
        away = [self._sorted_replica(number, queries) for number in dict.fromkeys(request.without)]
        return what_if_sorted(queries, add=add, take_away=away)

    def _sorted_replica(self, number: int, queries: TableQueries) -> ReplicaLayout:
        """Return how a sorted replica that answers queries of a table is stored."""
        record = self._store.replica(number)
        file = canonical_path(queries.table.file)
        if (record.file, record.dataset) != (file, queries.table.path):
            raise SdsValueError(
                f"replica {number} is of {record.file}:{record.dataset}, not of {queries.target}"
            )
        if record.sort is None:
            raise SdsValueError(
                f"replica {number} is not sorted: it serves reads, not queries; name others"
            )
        if record.state is not ReplicaState.ACTIVE:
            raise SdsValueError(f"replica {number} is {record.state} and answers no query now")
        return queries.layout(record.sort.key, record.sort.columns)

    def _layout_of_replica(self, number: int, known: KnownDataset) -> ReplicaLayout:
        """Return how a replica that serves a dataset is stored."""
        record = self._store.replica(number)
        if (record.file, record.dataset) != (known.file, known.described.path):
            raise SdsValueError(
                f"replica {number} is of {record.file}:{record.dataset}, not of "
                f"{known.reads.target}"
            )
        if record.sort is not None:
            raise SdsValueError(
                f"replica {number} is sorted by {record.sort.key}: it answers queries, and takes "
                "part in no read; name others"
            )
        if record.state not in LIVE_STATES:
            raise SdsValueError(f"replica {number} is {record.state} and serves no reads now")
        return record.layout


def _with_built(dataset: DatasetReads, portfolio: Portfolio) -> DatasetReads:
    """Return a dataset as if the replicas that are advised of it were built."""
    built = [x for x in portfolio.layouts if x.target == dataset.target and x.layout.sort is None]
    return replace(
        dataset,
        existing=(*dataset.existing, *(x.layout for x in built)),
        hypothetical_tiles=tuple(
            RecurringTiles(x.layout.segments, x.min_reads)
            for x in built
            if x.layout.segments is not None
        ),
    )


def _filters_of(known: KnownDataset) -> tuple[Filter, ...]:
    """Return the filters of a replica with its source's; LayoutError where it has none."""
    filters = parse_filters("source", known.described.filters)
    if not filters:
        raise LayoutError("the source has no filters, so its replica cannot have the same")
    return filters


def _hypothetical_replica(
    queries: TableQueries, key: str, columns: tuple[str, ...] | None
) -> ReplicaLayout:
    """Return a sorted replica that does not exist; its columns are those that queries need."""
    if columns is None:
        names = [name for query in queries.stated if key in query.compared for name in query.read]
        return queries.layout(key, names)
    return queries.layout(key, [column.name for column in queries.table.named(columns)])


def facts_of_table(table: Table) -> DatasetFacts:
    """Return what the catalog keeps of a table."""
    storage = "contiguous" if table.chunk_shape is None else "chunked"
    file = canonical_path(table.file)
    return DatasetFacts(
        file=file,
        identity=identity_of(file),
        path=table.path,
        extent=(table.n_rows,),
        element_size_bytes=table.row_size_bytes,
        storage=storage if table.is_compound else "group",
        data_offset_bytes=table.data_offset_bytes,
        chunk_shape=table.chunk_shape,
    )


def facts_of_description(file: str, described: DatasetDescription) -> DatasetFacts:
    """Return what the catalog keeps of a described dataset."""
    return DatasetFacts(
        file=file,
        identity=identity_of(file),
        path=described.path,
        extent=described.extent,
        element_size_bytes=described.element_size_bytes,
        storage=described.storage.value,
        data_offset_bytes=described.data_offset_bytes,
        chunk_shape=described.chunk_shape,
    )
