"""Where each Delta table lies below the data root, and who writes it, and removes from it: one writer per table.

| folder | writer | rows |
| --- | --- | --- |
| ``declarations/<stream>`` | stream, reset, upgrade | by which declaration the stream goes, and went before |
| ``streams/<stream>/state`` | stream | partial aggregates by key, window, batch; new commits carry the proof |
| ``streams/<stream>/ledger`` | stream | one row per batch: the proofs that were moved out of the state's commits |
| ``streams/<stream>/late`` | stream | the late ledger: one row per late (record, window) |
| ``streams/<stream>/rejected`` | stream | one row per dead-lettered record |
| ``outputs/<table>`` | stream | what the sink emitted, with revision |
| ``corrections/<table>`` | backfill | corrections, with higher revisions |
| ``archive/<topic>`` | archive | the raw log |
| ``audits/<stream>/<name>`` | audit | verdicts, differences, seeds |
| ``erasures/<stream>`` | ``recount erase``, which removes from all of the above | which key was erased, by its hash |
| ``set-aside/<stream>`` | ``recount set-aside`` | which record the stream goes on without, by whom, and why |
| ``acceptances/<stream>`` | ``recount findings accept``, also in Airflow | who accepted which finding, and why |
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tables:
    """Paths of the tables below ``root``, a folder or URI without a trailing slash."""

    root: str

    def declarations(self, stream: str) -> str:
        """The declarations of a stream in the order in which they came into force; it outlives a reset."""
        return f"{self.root}/declarations/{stream}"

    def state(self, stream: str) -> str:
        """Partial aggregates, whose commits carry the newest part of the batch ledger."""
        return f"{self.root}/streams/{stream}/state"

    def ledger(self, stream: str) -> str:
        """The older part of the batch ledger."""
        return f"{self.root}/streams/{stream}/ledger"

    def late(self, stream: str) -> str:
        """Late (record, window) pairs."""
        return f"{self.root}/streams/{stream}/late"

    def rejected(self, stream: str) -> str:
        """Dead-lettered records."""
        return f"{self.root}/streams/{stream}/rejected"

    def output(self, table: str) -> str:
        """What the stream emitted to a sink."""
        return f"{self.root}/outputs/{table}"

    def corrections(self, table: str) -> str:
        """What backfills corrected in a sink."""
        return f"{self.root}/corrections/{table}"

    def archive(self, topic: str) -> str:
        """The raw log of a topic."""
        return f"{self.root}/archive/{topic}"

    def audit(self, stream: str, name: str) -> str:
        """A table of the audit of a stream."""
        return f"{self.root}/audits/{stream}/{name}"

    def erasures(self, stream: str) -> str:
        """Which keys were erased from what a stream, or an archive, keeps."""
        return f"{self.root}/erasures/{stream}"

    def set_aside(self, stream: str) -> str:
        """Which records a stream goes on without."""
        return f"{self.root}/set-aside/{stream}"

    def acceptances(self, stream: str) -> str:
        """Who accepted which finding of a stream."""
        return f"{self.root}/acceptances/{stream}"
