"""The batch ledger of a stream as the stream itself reads it: to go on where it ended."""

from __future__ import annotations

from collections.abc import Iterator

from recount.core.ledger import BatchProof
from recount.proofs import Entry, Proofs


class History:
    """The batches whose proofs lie in the log of the table at ``path`` or were moved to the one at ``moved_to``."""

    def __init__(self, path: str, moved_to: str | None = None) -> None:
        self._proofs = Proofs(state=path, moved_to=moved_to)

    def entries(self) -> Iterator[Entry]:
        """Every batch with what is known about its append, newest first."""
        return self._proofs.newest_first()

    def newest_first(self) -> Iterator[BatchProof]:
        """The proof of every batch, newest first; those that nobody asks for are not read."""
        return (entry.proof for entry in self.entries())

    def last_before(self, order: tuple[int, int] | None = None) -> BatchProof | None:
        """The newest proof, or the newest before (generation, batch) ``order``."""
        return next((proof for proof in self.newest_first() if order is None or proof.order < order), None)
