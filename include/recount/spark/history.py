"""The batch ledger as it lies in the commits of a stream's state table."""

from __future__ import annotations

from collections.abc import Iterator

from deltalake import DeltaTable

from recount.core.ledger import BatchProof

_PAGE = 200


class History:
    """The proofs in the Delta log of the table at ``path``, newest first."""

    def __init__(self, path: str) -> None:
        self._path = path

    def newest_first(self, limit: int | None = None) -> Iterator[BatchProof]:
        """The proofs of the newest ``limit`` commits (None: of all)."""
        if not DeltaTable.is_deltatable(self._path):
            return
        for commit in DeltaTable(self._path).history(limit):
            proof = BatchProof.from_json(commit.get("userMetadata"))
            if proof:
                yield proof

    def last_before(self, order: tuple[int, int] | None = None) -> BatchProof | None:
        """The newest proof, or the newest before (generation, batch) ``order``."""
        for limit in (_PAGE, None):
            for proof in self.newest_first(limit):
                if order is None or proof.order < order:
                    return proof
        return None
