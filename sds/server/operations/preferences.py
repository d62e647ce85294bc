"""Preferences of people: modes, reads that are to come, replicas that stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sds.files import canonical_path
from sds.mounts import resolved_or_named
from sds.server.operations.service_components import ServiceComponents

if TYPE_CHECKING:
    from sds.catalog import records
    from sds.catalog.replica_records import ReplicaRecord
    from sds.catalog.requests import PolicyRequest, StatedReadsRequest


class Preferences(ServiceComponents):
    """The operations by which people say what they want; parameters as of `ServiceComponents`."""

    def policies(self) -> tuple[records.PolicyRecord, ...]:
        """Return the modes and budgets that are set for directories, files and datasets."""
        return self._store.policies()

    def set_policy(self, request: PolicyRequest) -> records.PolicyRecord:
        """Set mode and budget for a directory and all below it, a file, or a dataset."""
        path = resolved_or_named(request.path)
        found = self._store.set_policy(
            path, request.dataset, request.mode, budget_bytes=request.budget_bytes
        )
        self.to_evaluate.set()
        return found

    def unset_policy(
        self, path: records.AbsolutePath, dataset: str | None = None
    ) -> records.PolicyRecord:
        """Forget the mode of a directory, file or dataset, and return it.

        Raises
        ------
        NotFoundError
            If it has none.
        """
        found = self._store.unset_policy(resolved_or_named(path), dataset)
        self.to_evaluate.set()
        return found

    def stated_reads(
        self, file: records.AbsolutePath | None = None, dataset: str | None = None
    ) -> tuple[records.StatedReadsRecord, ...]:
        """Return the reads that people stated, oldest first; of one file or dataset, or all."""
        return self._store.stated_reads(None if file is None else canonical_path(file), dataset)

    def state_reads(self, request: StatedReadsRequest) -> records.StatedReadsRecord:
        """Keep reads that programs are going to make: advice counts them with those traced.

        They take the place of those of the same selection.

        Raises
        ------
        FileMissingError, NotHdf5Error, DatasetNotFoundError, SelectionError, SdsValueError
            As the file, the dataset, the selection and the number are at fault.
        """
        from sds.analyzer import stated_pattern  # noqa: PLC0415
        from sds.hdf5.dataset import describe_dataset  # noqa: PLC0415
        from sds.server.operations.advice import facts_of_description  # noqa: PLC0415

        file = canonical_path(request.file)
        described = describe_dataset(file, request.dataset)
        stated_pattern(
            request.selection,
            extent=described.extent,
            element_size_bytes=described.element_size_bytes,
            n_reads_per_day=request.n_reads_per_day,
        )
        facts = facts_of_description(file, described)
        return self._store.state_reads(facts, request.selection, request.n_reads_per_day)

    def forget_reads(self, number: records.Id) -> records.StatedReadsRecord:
        """Forget reads that were stated, and return them.

        Raises
        ------
        NotFoundError
            If there are none of that number.
        """
        found = self._store.forget_reads(number)
        self.to_evaluate.set()
        return found

    def newest_statement_ns(self) -> int:
        """Return when reads were stated last, ns since 1970; 0: none are."""
        return self._store.newest_statement_ns()

    def pin(self, replica_id: records.Id) -> ReplicaRecord:
        """Keep a replica, whatever else would save more in its room; `remove` still does."""
        return self._store.pin_replica(replica_id, pinned=True)

    def unpin(self, replica_id: records.Id) -> ReplicaRecord:
        """Let mode auto remove a replica for others."""
        found = self._store.pin_replica(replica_id, pinned=False)
        self.to_evaluate.set()
        return found
