"""A call that may take long, made in a thread of its own, for those who cannot wait for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as Late
from typing import Generic, TypeVar

from confluent_kafka import KafkaException

from recount.core.errors import RecountError

_LOG = logging.getLogger(__name__)
Result = TypeVar("Result")


class PatientCall(Generic[Result]):
    """Makes one call at a time and waits for at most ``patience_s`` seconds; ``what`` names whom it asks.

    While a call that took longer still runs, nobody waits for another one.
    """

    def __init__(self, what: str, patience_s: float) -> None:
        self.problem: str | None = None
        self._what = what
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=what)
        self._overdue: Future[Result] | None = None

    def __call__(self, call: Callable[[], Result]) -> Result | None:
        """What ``call`` returns; None where it did not come in time or failed, and then ``problem`` says why."""
        if self._overdue is not None and not self._overdue.done():
            return None
        asked = self._pool.submit(call)
        try:
            found = asked.result(self._patience_s)
        except Late:
            if not asked.cancel():
                self._overdue = asked
            self.problem = f"the {self._what} have not answered within {self._patience_s:g} s"
        except (RecountError, KafkaException) as error:
            self.problem = f"the {self._what} cannot be asked: {error}"
        else:
            self.problem = None
            return found
        _LOG.warning("%s", self.problem)
        return None
