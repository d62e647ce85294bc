"""Which layouts would save time: patterns, models and datasets brought together."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.records import DatasetFacts, ReplicaState
from sds.columns import check_key, check_names
from sds.dataset import describe_dataset
from sds.errors import LayoutError, SdsValueError
from sds.geometry import Box
from sds.identity import identity_of
from sds.organizer.layout import parse_region
from sds.recommender import (
    ReplicaShape,
    advise_stripes,
    choose_portfolio,
    rank_layouts,
    rank_sorting,
    what_if,
    what_if_sorted,
)
from sds.server.known_reads import KnownReads, shape_of
from sds.server.reports import Advice, PortfolioAdvice, QueriedTable, QueryAdvice
from sds.sort_advice import sample_queries

if TYPE_CHECKING:
    import os

    from sds.catalog.records import RecommendationRecord
    from sds.catalog.store import Store
    from sds.columns import Table
    from sds.dataset import DatasetDescription
    from sds.geometry import SegmentList
    from sds.home import Home
    from sds.recommender import SortedShape, TableQueries, WhatIf
    from sds.server.known_reads import KnownDataset
    from sds.server.models import Models
    from sds.server.reports import (
        Counts,
        PortfolioRequest,
        RecurringTiles,
        Selections,
        WhatIfRequest,
    )
    from sds.server.settings import Settings
    from sds.server.stages import Progress


class Adviser:
    """Gives advice on datasets."""

    def __init__(self, home: Home, store: Store, models: Models, settings: Settings) -> None:
        self._home = home
        self._store = store
        self._models = models
        self._settings = settings

    def advise(
        self,
        file: str,
        dataset: str | None,
        *,
        selection: Selections,
        n_reads: Counts,
        progress: Progress,
    ) -> Advice:
        """Return recommendations, and keep them.

        Parameters and errors as of `sds.server.known_reads.KnownReads.of`.
        """
        found, notes = self._known_reads().of(
            file, dataset, selection=selection, n_reads=n_reads, progress=progress
        )
        given = [self._rank(known) for known in found]
        given.sort(key=lambda record: -record.recommendation.best.benefit_s)
        return Advice(
            file=str(Path(file).resolve()),
            recommendations=tuple(given),
            notes=tuple(dict.fromkeys(notes)),
        )

    def advise_queries(self, request: QueriedTable, *, progress: Progress) -> QueryAdvice:
        """Return what each sorted replica of a table would save of stated queries, and keep it.

        Errors as of `sds.sort_advice.sample_queries`.
        """
        asked = self._asked(request, progress=progress)
        recommendation = rank_sorting(asked)
        record = self._store.add_query_recommendation(facts_of_table(asked.table), recommendation)
        return QueryAdvice(
            file=record.file,
            table=record.table,
            recommendation=record,
            notes=recommendation.notes,
        )

    def _known_reads(self) -> KnownReads:
        """Return what finds the reads of one request: its models share one budget."""
        return KnownReads(self._store, self._models)

    def _asked(self, request: QueriedTable, *, progress: Progress) -> TableQueries:
        """Return queries with what a sample of their table says of them."""
        progress(0.0, f"sample {request.table}")
        return sample_queries(
            canonical_source(request.file),
            request.table,
            request.queries,
            home=self._home,
            parameters=self._models.io_parameters(request.file),
        )

    def portfolio(self, request: PortfolioRequest, *, progress: Progress) -> PortfolioAdvice:
        """Return the replicas to build, of all datasets and tables asked for, under one budget.

        Errors as of `sds.server.known_reads.KnownReads.of` and `sds.sort_advice.sample_queries`;
        SdsValueError where nothing is named, or a selection is stated for several datasets.
        """
        if not request.datasets and not request.tables:
            raise SdsValueError("a portfolio of what? name at least one file or dataset")
        if request.selection is not None and len(request.datasets) > 1:
            raise SdsValueError("state a selection for one dataset at a time, or trace the reads")
        known, tables, notes = self._named(request, progress=progress)
        budget = request.budget_bytes
        if budget is None:
            budget = self._settings.replica_budget_bytes
            if budget is not None:
                budget = max(0, budget - self._store.bytes_beside(""))
        free = shutil.disk_usage(self._home.replicas.parent).free
        reads = [each.reads for each in known]
        portfolio = choose_portfolio(
            reads, tables=tables, budget_bytes=free if budget is None else budget
        )
        if budget is not None and portfolio.used_bytes > free:
            notes.append(
                f"{self._home.replicas} has {free} bytes free, fewer than the "
                f"{portfolio.used_bytes} that this takes: make room, or give a smaller budget"
            )
        built: dict[str, list[ReplicaShape]] = {}
        for layout in portfolio.layouts:
            if isinstance(layout.layout, ReplicaShape):
                built.setdefault(layout.target, []).append(layout.layout)
        stripes = advise_stripes(
            [
                replace(each, existing=(*each.existing, *built.get(each.target, ())))
                for each in reads
            ],
            directory=str(self._home.replicas),
            n_osts=self._settings.ost_count,
            allowed=self._settings.stripe_advice,
        )
        return PortfolioAdvice(
            portfolio=portfolio,
            stripes=stripes,
            notes=tuple(dict.fromkeys((*notes, *portfolio.notes))),
        )

    def _named(
        self, request: PortfolioRequest, *, progress: Progress
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
            tables.append(self._asked(queried, progress=part(i)))
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
        add: list[ReplicaShape] = []
        if request.order is not None:
            segments = None
            if request.tiles is not None:
                segments = reads.recurring(
                    known.file, known.described, request.tiles, request.min_reads
                )
            shape = ReplicaShape(
                order=request.order,
                chunk_shape=request.chunks,
                filtered=request.filtered,
                region=_part(request.region, known.described.extent),
                segments=segments,
                min_reads=0 if segments is None else request.min_reads,
            )
            add.append(shape)
        elif request.filtered or any(
            given is not None for given in (request.chunks, request.region, request.tiles)
        ):
            raise LayoutError(
                "chunks, filters, region, tiles of which layout? name its axis order too"
            )
        away = [self._shape_of_replica(number, known) for number in dict.fromkeys(request.without)]
        return what_if(known.reads, add=add, take_away=away)

    def recurring(self, request: RecurringTiles) -> SegmentList:
        """Return the tiles of a dataset that are read again and again, in segments.

        Errors as of `sds.dataset.describe_dataset` and `KnownReads.recurring`.
        """
        file = canonical_source(request.file)
        described = describe_dataset(file, request.dataset)
        return self._known_reads().recurring(file, described, request.tiles, request.min_reads)

    def _traced_reads(self, table: Table, reads: KnownReads) -> list[KnownDataset]:
        """Return a compound table as a dataset that is read, where it was; columns have names."""
        file = canonical_source(table.file)
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
                f"columns {', '.join(request.columns)} of a replica sorted by what? name that too"
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
        asked = self._asked(queried, progress=progress)
        add = []
        if request.sort is not None:
            check_key(asked.table.column(request.sort), asked.target)
            add.append(_supposed(asked, request.sort, request.columns))
        away = [self._sorted_replica(number, asked) for number in dict.fromkeys(request.without)]
        return what_if_sorted(asked, add=add, take_away=away)

    def _sorted_replica(self, number: int, asked: TableQueries) -> SortedShape:
        """Return how a sorted replica that answers queries of a table is stored."""
        record = self._store.replica(number)
        file = canonical_source(asked.table.file)
        if (record.file, record.dataset) != (file, asked.table.path):
            raise SdsValueError(
                f"replica {number} is of {record.file}:{record.dataset}, not of {asked.target}"
            )
        if record.sort is None:
            raise SdsValueError(
                f"replica {number} is not sorted: it serves reads, not queries; name others"
            )
        if record.state is not ReplicaState.ACTIVE:
            raise SdsValueError(f"replica {number} is {record.state} and answers no query now")
        return asked.shape(record.sort.key, record.sort.columns)

    def _shape_of_replica(self, number: int, known: KnownDataset) -> ReplicaShape:
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
        if record.state is not ReplicaState.ACTIVE:
            raise SdsValueError(f"replica {number} is {record.state} and serves no reads now")
        return shape_of(record)

    def _rank(self, known: KnownDataset) -> RecommendationRecord:
        recommendation = rank_layouts(
            known.reads.patterns,
            array=known.reads.array,
            models=known.reads.models,
            existing_orders=[
                shape.order
                for shape in known.reads.existing
                if shape.chunk_shape is None and not shape.is_partial
            ],
            target=known.reads.target,
        )
        facts = facts_of_description(known.file, known.described)
        return self._store.add_recommendation(facts, recommendation)


def _part(region: str | None, extent: tuple[int, ...]) -> Box | None:
    """Return the box that a region names; None where it is the whole dataset."""
    box = None if region is None else parse_region(region, extent)
    return None if box == Box.whole(extent) else box


def _supposed(asked: TableQueries, key: str, columns: tuple[str, ...] | None) -> SortedShape:
    """Return a sorted replica that does not exist; its columns are those that queries need."""
    if columns is None:
        names = [name for query in asked.queries if key in query.compared for name in query.read]
        return asked.shape(key, names)
    for name in check_names(columns, "columns"):
        asked.table.column(name)
    return asked.shape(key, columns)


def canonical_source(file: str | os.PathLike[str]) -> str:
    """Return the path by which the catalog knows a file."""
    try:
        return str(Path(file).resolve())
    except ValueError as error:  # a null byte
        message = f"file {file!r} is no path ({error}); send one that the system can have"
        raise SdsValueError(message) from error


def facts_of_table(table: Table) -> DatasetFacts:
    """Return what the catalog keeps of a table."""
    storage = "contiguous" if table.chunk_shape is None else "chunked"
    file = canonical_source(table.file)
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
