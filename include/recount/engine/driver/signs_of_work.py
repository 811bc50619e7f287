"""Signs that a stream works: work that is done, not a thread that says so."""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from recount.runtime.times import clock_ms

Worked = Callable[[], None]


def _unseen() -> None: ...


_WORKED: ContextVar[Worked] = ContextVar("worked", default=_unseen)


def worked() -> None:
    """Say that one more piece of the batch at hand is done: called for each record that Python handles in the driver.

    A timer is no such piece: one that schedules itself again and again would look like work for ever.
    """
    _WORKED.get()()


class SignsOfWork:
    """Knows since when a stream has had something to do and has done none of it.

    Something to do is a batch at hand (its start, and the stream's own start, are batches in this sense), or records
    that could be read. Done is what ``did`` says, or ``look`` finds: steps, records, tasks of Spark.

        12:00:00  batch done, all is read         idle: healthy for however long
        12:04:30  a record comes                  waits since 12:04:30
        12:04:31  batch begins, a task ends       waits since 12:04:31, the last sign of work

    One thread works, another one looks. ``now_ms`` is the clock.
    """

    def __init__(self, now_ms: Callable[[], int] = clock_ms) -> None:
        self._now_ms = now_ms
        self._count = 0
        self._begun_ms: int | None = None
        self._seen: tuple[int, Hashable] = (0, None)
        self._done_ms = now_ms()
        self._unread_since_ms: int | None = None

    @property
    def batch_begun_ms(self) -> int | None:
        return self._begun_ms

    @contextmanager
    def batch(self) -> Iterator[None]:
        """A batch is at hand meanwhile, and what this thread does counts as work on it."""
        watched = _WORKED.set(self.piece)
        self.did()
        self._begun_ms = self._now_ms()
        try:
            yield
        finally:
            self.did()
            self._begun_ms = None
            _WORKED.reset(watched)

    def did(self) -> None:
        """A step is done."""
        self._done_ms = self._now_ms()

    def piece(self) -> None:
        """A small piece of the batch is done, which ``look`` will notice; called for each record, so it is cheap."""
        self._count += 1

    def look(self, tasks: Hashable = None) -> None:
        """Compare with the last look: whether pieces were done, or Spark's ``tasks`` (None: not asked) have come on."""
        seen = (self._count, self._seen[1] if tasks is None else tasks)
        if seen != self._seen:
            self._seen = seen
            if self._begun_ms is not None:
                self.did()

    def unread(self, readable: int, at_ms: int) -> None:
        """So many records could be read at ``at_ms`` or later, as the brokers say."""
        if not readable:
            self._unread_since_ms = None
        elif self._unread_since_ms is None or self._unread_since_ms < self._done_ms:
            # what was unread before the last work may have been read by it
            self._unread_since_ms = at_ms

    @property
    def waiting_since_ms(self) -> int | None:
        """Since when there has been something to do, and nothing was done; None when there is nothing to do."""
        if self._begun_ms is not None:
            return self._done_ms
        since_ms = self._unread_since_ms
        return since_ms if since_ms is not None and since_ms >= self._done_ms else None
