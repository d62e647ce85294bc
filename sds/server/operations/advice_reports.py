"""Questions about layouts and models, and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, TypeAlias

from pydantic import Field

from sds.analyzer import MIN_READS
from sds.catalog.model_records import CalibrationRecord
from sds.catalog.records import AbsolutePath, Bytes, Flag, Id, Whole
from sds.recommender.portfolio.striping_advice import StripeAdvice
from sds.recommender.portfolio.values import Portfolio
from sds.server.operations.sort_advice import QueryRequest

Count: TypeAlias = Annotated[Whole, Field(ge=1, le=2**63 - 1)]
Selections: TypeAlias = str | tuple[str, ...] | None
"""A typical read, or several, stated; None: what was traced."""
Counts: TypeAlias = Count | tuple[Count, ...] | None
"""Reads a day of each selection stated, or of all of them alike; None: 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """A file that might be written anew, in other chunks of one dataset, in place of a replica.

    Attributes
    ----------
    target
        ``FILE:/path``.
    chunk_shape
        Of the dataset.
    seconds_then
        Of its reads a day.
    command
        What a user types.
    """

    target: str
    chunk_shape: tuple[int, ...]
    seconds_then: float
    command: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The replicas to build, of several datasets and tables.

    Attributes
    ----------
    portfolio
        The set, and what each saves.
    stripes
        How the directory of replicas should be striped before; only advice.
    notes
        What was left out, and why.
    rewrites
        Files that might be written anew instead, where one replica is advised of a dataset.
    """

    portfolio: Portfolio
    stripes: StripeAdvice
    notes: tuple[str, ...]
    rewrites: tuple[Rewrite, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrations:
    """The newest calibration of each file system."""

    calibrations: tuple[CalibrationRecord, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDataset:
    """A dataset, or with ``dataset`` None every dataset of a file that was read."""

    file: AbsolutePath
    dataset: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueriedTable:
    """A table, and the queries that programs ask of it.

    Attributes
    ----------
    table
        HDF5 path of a group of equally long datasets, or of a compound dataset.
    """

    file: AbsolutePath
    table: str
    queries: tuple[QueryRequest, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurringTilesRequest:
    """Tiles of a dataset that are read again and again.

    Attributes
    ----------
    tiles
        Elements per axis of the dataset.
    min_reads
        Tiles that were read less often, among the newest reads of the dataset, are not meant.
    """

    file: AbsolutePath
    dataset: str
    tiles: tuple[Whole, ...]
    min_reads: Whole = MIN_READS


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceRequest:
    """Datasets and tables to advise on, under one budget of space.

    Attributes
    ----------
    budget_bytes
        Space for new replicas, of all datasets and tables together; None: the setting
        ``replica_budget_bytes``, else what is free in the home.
    tables
        With their queries, for which sorted replicas are considered; of a compound dataset the
        traced reads as well.
    selection, n_reads
        A typical read, stated, of the one dataset named, and how many there are a day; None: what
        was traced.
    """

    datasets: tuple[NamedDataset, ...] = ()
    budget_bytes: Bytes | None = None
    selection: Selections = None
    n_reads: Counts = None
    tables: tuple[QueriedTable, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRequest:
    """Hypothetical layout to add, and existing replicas to leave out.

    Attributes
    ----------
    order, chunks, filtered
        Of a replica that does not exist: its axis order (None: suppose none), its chunk shape in
        its own axes (None: contiguous), whether its chunks have the source's filters.
    region
        The box of the source that it holds, as a selection such as ``[0:100, :, :]``; None: all.
    tiles, min_reads
        Instead of that, the tiles of this shape that were read at least so often; see
        `RecurringTilesRequest`.
    without
        Replicas that exist, by their numbers.
    selection, n_reads
        As of `AdviceRequest`.
    queries
        Of the dataset, a table: then sorted replicas are supposed, and no reads are looked at.
    sort, columns
        With queries, of a sorted replica that does not exist: its key (None: suppose none), and
        what it holds besides (None: what the queries need that compare the key).
    """

    file: AbsolutePath
    dataset: str
    order: tuple[Whole, ...] | None = None
    chunks: tuple[Whole, ...] | None = None
    filtered: Flag = False
    region: str | None = None
    tiles: tuple[Whole, ...] | None = None
    min_reads: Whole = MIN_READS
    without: tuple[Annotated[Id, Field(strict=True)], ...] = ()
    selection: Selections = None
    n_reads: Counts = None
    queries: tuple[QueryRequest, ...] = ()
    sort: str | None = None
    columns: tuple[str, ...] | None = None
