"""The catalog of one home: every query of it but those of the job queue.

The queries lie in one module per subject; each public method is one transaction, kept whole or not
at all. (:mod:`sds.catalog.job_queue` has those of jobs.)
"""

from __future__ import annotations

from sds.catalog.database import open_engine, open_engine_to_read
from sds.catalog.datasets import Datasets
from sds.catalog.events import Events
from sds.catalog.migrate import check_revision, upgrade
from sds.catalog.policies import Policies
from sds.catalog.predictions import Predictions
from sds.catalog.publications import Publications
from sds.catalog.reads import Reads
from sds.catalog.replicas import Replicas
from sds.catalog.stated_reads import StatedReads


class Store(Datasets, Reads, Predictions, Replicas, Publications, Policies, StatedReads, Events):
    """The catalog of one home."""

    @classmethod
    def open(cls, url: str) -> Store:
        """Open a catalog, creating it where there is none.

        Raises
        ------
        CatalogError
            If it is of another revision, or would lie on a network file system.
        ConfigurationError
            If the URL cannot be used.
        """
        engine = open_engine(url)
        try:
            if not check_revision(engine):
                upgrade(engine)
        except BaseException:
            engine.dispose()
            raise
        return cls(engine)

    @classmethod
    def open_to_read(cls, url: str) -> Store | None:
        """Open a catalog for its queries alone; nothing is written. None where there is none.

        Raises
        ------
        CatalogError
            If it may not be read, or is of another revision.
        ConfigurationError
            If the URL cannot be used.
        """
        engine = open_engine_to_read(url)
        if engine is None:
            return None
        try:
            is_ready = check_revision(engine)
        except BaseException:
            engine.dispose()
            raise
        if not is_ready:
            engine.dispose()
            return None
        return cls(engine)
