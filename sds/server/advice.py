"""Which layouts would save time: patterns, models and datasets brought together."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from sds.catalog.records import DatasetFacts, ReplicaState
from sds.errors import LayoutError, SdsValueError
from sds.geometry import Box
from sds.identity import identity_of
from sds.organizer.layout import parse_region
from sds.recommender import (
    ReplicaShape,
    advise_stripes,
    choose_portfolio,
    rank_layouts,
    what_if,
)
from sds.server.known_reads import KnownReads, shape_of
from sds.server.reports import Advice, PortfolioAdvice

if TYPE_CHECKING:
    from sds.catalog.records import RecommendationRecord
    from sds.catalog.store import Store
    from sds.dataset import DatasetDescription
    from sds.home import Home
    from sds.recommender import WhatIf
    from sds.server.known_reads import KnownDataset
    from sds.server.models import Models
    from sds.server.reports import Counts, PortfolioRequest, Selections, WhatIfRequest
    from sds.server.settings import Settings
    from sds.server.stages import Progress


class Adviser:
    """Gives advice on datasets."""

    def __init__(self, home: Home, store: Store, models: Models, settings: Settings) -> None:
        self._home = home
        self._store = store
        self._settings = settings
        self._known = KnownReads(store, models)

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
        found, notes = self._known.of(
            file, dataset, selection=selection, n_reads=n_reads, progress=progress
        )
        given = [self._rank(known) for known in found]
        given.sort(key=lambda record: -record.recommendation.best.benefit_s)
        return Advice(
            file=str(Path(file).resolve()), recommendations=tuple(given), notes=tuple(notes)
        )

    def portfolio(self, request: PortfolioRequest, *, progress: Progress) -> PortfolioAdvice:
        """Return the replicas to build, of all datasets asked for, under one budget.

        Errors as of `sds.server.known_reads.KnownReads.of`; SdsValueError where no dataset is
        named, or a selection is stated for several.
        """
        if not request.datasets:
            raise SdsValueError("a portfolio of what? name at least one file or dataset")
        if request.selection is not None and len(request.datasets) > 1:
            raise SdsValueError("state a selection for one dataset at a time, or trace the reads")
        found: dict[str, KnownDataset] = {}
        notes: list[str] = []
        for i, name in enumerate(request.datasets):

            def part(share: float, what: str, i: int = i) -> None:
                progress((i + share) / len(request.datasets), what)

            known, more = self._known.of(
                name.file,
                name.dataset,
                selection=request.selection,
                n_reads=request.n_reads,
                progress=part,
            )
            found.update((each.reads.target, each) for each in known)
            notes += more
        budget = request.budget_bytes
        if budget is None:
            budget = self._settings.replica_budget_bytes
        free = shutil.disk_usage(self._home.replicas.parent).free
        reads = [known.reads for known in found.values()]
        portfolio = choose_portfolio(reads, budget_bytes=free if budget is None else budget)
        if budget is not None and portfolio.used_bytes > free:
            notes.append(
                f"{self._home.replicas} has {free} bytes free, fewer than the "
                f"{portfolio.used_bytes} that this takes: make room, or give a smaller budget"
            )
        built: dict[str, list[ReplicaShape]] = {}
        for layout in portfolio.layouts:
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

    def what_if(self, request: WhatIfRequest, *, progress: Progress) -> WhatIf:
        """Return what reads would take with a layout more, or with replicas taken away.

        Raises
        ------
        LayoutError
            If the layout cannot be, or neither it nor a replica is named.
        SdsValueError
            If there are no reads to predict, or a replica is of another dataset.
        """
        found, notes = self._known.of(
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
            shape = ReplicaShape(
                order=request.order,
                chunk_shape=request.chunks,
                filtered=request.filtered,
                region=_part(request.region, known.described.extent),
            )
            add.append(shape)
        elif request.chunks is not None or request.filtered or request.region is not None:
            raise LayoutError("chunks, filters, region of which layout? name its axis order too")
        away = [self._shape_of_replica(number, known) for number in request.without]
        return what_if(known.reads, add=add, take_away=away)

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
        reads = known.reads
        recommendation = rank_layouts(
            reads.patterns,
            array=reads.array,
            models=reads.models,
            existing_orders=[
                shape.order
                for shape in reads.existing
                if shape.chunk_shape is None and shape.region is None
            ],
            target=reads.target,
        )
        facts = facts_of_description(known.file, known.described)
        return self._store.add_recommendation(facts, recommendation)


def _part(region: str | None, extent: tuple[int, ...]) -> Box | None:
    """Return the box that a region names; None where it is the whole dataset."""
    box = None if region is None else parse_region(region, extent)
    return None if box == Box.whole(extent) else box


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
