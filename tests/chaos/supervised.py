"""The drivers of one stream in a long run: the one that is at work, and those that were held up and left behind."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.submitted import Submitted

from recount.kafka.connection import Connection
from recount.kafka.leases import request_stop
from recount.kafka.status import StatusBoard
from recount.runtime.errors import Transient
from recount.runtime.settings import Settings

_TRIGGER_MS = 5_000
_FENCED_WITHIN_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Ended:
    """A driver that ended by itself: its exit code, and why."""

    stream: str
    code: int
    why: str
    log: str


@dataclass
class Supervised:
    """Launches the driver of ``stream``, and launches it again at once whenever it has ended."""

    stream: str
    master: str
    settings: Settings
    connection: Connection
    note: Callable[[Ended], None]
    faults: list[str] = field(default_factory=list)
    launches: int = 0
    _driver: Submitted | None = None
    _ordered: Submitted | None = None
    _held: list[Submitted] = field(default_factory=list)
    _behind: list[tuple[Submitted, float]] = field(default_factory=list)

    def tend(self) -> None:
        """Launch a driver where none is at work, and look after those that were left behind."""
        driver = self._driver
        if driver is not None and (code := driver.code) is not None:
            if code != 0 or driver is not self._ordered:
                self.note(Ended(stream=self.stream, code=code, why=driver.last_words(), log=str(driver.log)))
            self._driver = None
        if self._driver is None:
            self._launch()
        self._behind = [(driver, since_s) for driver, since_s in self._behind if not self._is_gone(driver, since_s)]

    def kill(self, *, with_checkpoint: bool = False) -> None:
        """kill -9 to the driver at work; ``with_checkpoint`` removes Spark's checkpoint before the next is launched."""
        if self._driver is not None:
            self._driver.kill()
        if with_checkpoint:
            shutil.rmtree(Path(self.settings.checkpoints) / self.stream, ignore_errors=True)
        self._driver = None

    def hold_up(self) -> Submitted | None:
        """Stop the driver at work where it stands (SIGSTOP); the next one is launched beside it."""
        held, self._driver = self._driver, None
        if held is not None:
            held.send(signal.SIGSTOP)
            self._held.append(held)
        return held

    def let_go(self, held: Submitted) -> None:
        """Let a driver that was held up go on: it must find out that it was replaced, and end."""
        self._held.remove(held)
        self._behind.append((held, time.monotonic()))
        held.send(signal.SIGCONT)

    def order_stop(self) -> bool:
        """Order the driver at work to stop after its batch, as soon as it says that it is there; False if it ends."""
        driver = self._driver
        while driver is not None and driver is self._driver and driver.code is None:
            if (lease_epoch := self._lease_epoch(driver)) is not None:
                self._ordered = driver
                with suppress(Transient):  # while a broker is away: once more
                    request_stop(self.connection, self.stream, lease_epoch)
                    return True
            time.sleep(0.5)
        return False

    def finish(self, limit_s: float) -> None:
        """Order the driver to stop, and wait until it has: what it had begun is committed.

        One that ends in another way has a successor, which is ordered to stop as well.
        """
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self.tend()
            driver = self._driver
            if driver is None or not self.order_stop():
                continue
            while driver.code is None and time.monotonic() < deadline:
                time.sleep(0.5)
            if driver.code == 0:
                return
        self.faults.append(f"{self.stream}: no driver stopped as it was told to within {limit_s:.0f} s")

    def kill_all(self) -> None:
        """kill -9 to every driver, also to those that are held up."""
        at_work = [self._driver] if self._driver is not None else []
        for driver in [*at_work, *self._held, *(driver for driver, _ in self._behind)]:
            driver.kill()

    @property
    def is_alone(self) -> bool:
        """Whether no driver is held up or left behind."""
        return not self._held and not self._behind

    def _launch(self) -> None:
        self.launches += 1
        log = Path(self.settings.logs) / f"{self.stream}-{self.launches}.log"
        arguments = ["--stream", self.stream, "--trigger-interval-ms", str(_TRIGGER_MS)]
        self._driver = Submitted("stream.py", arguments, master=self.master, settings=self.settings, log=log)

    def _lease_epoch(self, driver: Submitted) -> int | None:
        """The lease epoch of ``driver``; None while the board does not know of it, or cannot be read."""
        board = StatusBoard(self.connection)
        try:
            status = board.of(self.stream)
        except Transient:
            return None
        finally:
            board.close()
        return status.lease_epoch if status and status.started_at_ms >= driver.began_ms else None

    def _is_gone(self, driver: Submitted, since_s: float) -> bool:
        if driver.code is not None:
            return True
        if time.monotonic() - since_s < _FENCED_WITHIN_S:
            return False
        late = f"a driver that was replaced still ran {_FENCED_WITHIN_S:.0f} s after it was let go"
        self.faults.append(f"{self.stream}: {late}: {driver.log}")
        driver.kill()
        return True
