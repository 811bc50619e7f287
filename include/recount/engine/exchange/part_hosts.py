"""Processes that hold the parts of streams between batches, beside the executor whose tasks have these parts.

A Python worker of Spark does not keep anything for long: any of an executor's workers gets any task, and an idle one
ends. So a task passes the rows of its part to another process, one for each number of a part and executor, and starts
it where there is none. What that process holds is a copy: it is used for the batch after the one that made it. For any
other the part is read from the state table again. The process ends with its executor, or when it has been idle.

Only this user can connect to it: what it reads and writes is pickled, as between Spark and its workers.
"""

import fcntl
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import polars as pl
import psutil

from recount.engine.exchange.graph_part import GraphPart, GraphPlan
from recount.engine.operators.partition_clock import PartitionClock
from recount.engine.source.checkpoint import BatchRange
from recount.engine.stage.intake import from_ipc, to_ipc
from recount.engine.stage.record_stage import TOTALS
from recount.engine.state.graph_state import Part, since_snapshot
from recount.runtime.errors import Transient
from recount.tables.batch_proofs import earlier

FAILED = "failed"
"""The name under which an error leaves a part, pickled."""
Blobs = Sequence[tuple[str, bytes]]
"""Tables as Arrow IPC, by name."""
_LONGEST_FOLDER = 70
"""Characters: the address of a socket has at most 107."""
_PATIENCE_S = 30.0
_WATCH_S = 1.0
_IDLE_S = 600.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """The tables of part ``number`` of ``parts`` for one batch, and all that it needs to know beside them.

    ``run`` is one run of one stream: what another one has left is not gone on with. ``plan`` is a pickled
    ``GraphPlan``; ``state`` the path of the state table, of which the batches earlier than ``before`` count;
    ``outputs`` those of the output tables, by name.
    """

    run: str
    parts: int
    plan: bytes
    state: str
    before: tuple[int, int]
    span: BatchRange
    clock: PartitionClock
    whole: bool
    outputs: Mapping[str, str]
    number: int = 0
    tables: Blobs = ()


def ask(request: Request) -> Blobs:
    """The tables that the part makes, from the process that holds it; one that has ended is started again, once.

    An error is a table too: ``Transient`` where there is no process that answers.
    """
    payload = pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL)
    try:
        address = _address(request.number)
        try:
            return _asked(address, payload)
        except (EOFError, OSError):
            return _asked(address, payload)
    except (EOFError, OSError) as error:
        return [(FAILED, _pickled(_no_answer(request, error)))]


def _asked(address: str, payload: bytes) -> Blobs:
    connection = _CONNECTIONS.pop(address, None) or _connected(address)
    connection.send_bytes(payload)
    found: Blobs = pickle.loads(connection.recv_bytes())  # noqa: S301 - see above
    _CONNECTIONS[address] = connection
    return found


def _no_answer(request: Request, error: Exception) -> Transient:
    return Transient.of(
        "part-host-silent",
        given=f"{type(error).__name__}: {error}" if str(error) else "it has ended twice in one batch",
        number=request.number,
        folder=_folder(),
    )


_CONNECTIONS: dict[str, Connection] = {}
"""To the processes that this worker has asked."""


def _executor() -> psutil.Process:
    """The JVM whose task this is: workers are forked by a daemon that it has started."""
    here = psutil.Process()
    return next((one for one in here.parents() if is_executor(one)), here)


def is_executor(process: psutil.Process) -> bool:
    return "java" in process.name()


def processes_of(executor: psutil.Process) -> Iterator[int]:
    """The ids of the processes that hold parts for the JVM ``executor``: they are no children of it."""
    for file in _folder().glob(f"{_name(executor)}-*.lock"):
        told = file.read_text()
        if told and psutil.pid_exists(int(told)):
            yield int(told)


def _name(executor: psutil.Process) -> str:
    return f"{executor.pid}-{int(executor.create_time())}"


def _folder() -> Path:
    name = f"recount-parts-{os.getuid()}"
    folder = Path(tempfile.gettempdir()) / name
    return folder if len(str(folder)) < _LONGEST_FOLDER else Path("/tmp") / name  # noqa: S108 - see ``_address``


def _address(number: int) -> str:
    folder, file = _folder(), f"{_name(_executor())}-{number}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.getuid() or folder.stat().st_mode & 0o077:
        raise PermissionError(f"{folder} is open to others")
    return str(folder / file)


def _connected(address: str) -> Connection:
    """A connection to the process at ``address``, started where there is none."""
    with Path(f"{address}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            Path(address).unlink(missing_ok=True)
        executor = _executor()
        path = os.pathsep.join(each for each in sys.path if each)
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, address, str(executor.pid)],
            env={**os.environ, "PYTHONPATH": path, "POLARS_MAX_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        lock.truncate(0)
        lock.write(str(process.pid))
        lock.flush()
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline and process.poll() is None:
            try:
                return Client(address, "AF_UNIX")
            except (FileNotFoundError, ConnectionRefusedError):
                time.sleep(0.02)
    raise OSError(f"the process for parts at {address} does not start: exit code {process.poll()}")


@dataclass
class _Held:
    """A part as it stands after the batch ``after`` of ``run``; ``used_s`` is when it was asked last."""

    run: str = ""
    part: GraphPart | None = None
    after: tuple[int, int] | None = None
    used_s: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock)


class PartHost:
    """Holds parts, by state table and number."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, int], _Held] = {}
        self._plans: dict[str, GraphPlan] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Blobs:
        """The tables that the part makes; an error is one of them."""
        with self._lock:
            held = self._held.setdefault((request.state, request.number), _Held())
        with held.lock:
            try:
                part = self._part(held, request)
                held.part = None  # after an error it is not to be used again
                made = _processed(part, request)
            except Exception as error:
                error.add_note(f"in the process of a part:\n{traceback.format_exc()}")
                return [(FAILED, _pickled(error))]
            held.run, held.part, held.after, held.used_s = request.run, part, request.before, time.monotonic()
            return made

    def forget_idle(self) -> bool:
        """Drop what has not been asked for long; returns whether nothing is left."""
        with self._lock:
            for place, held in list(self._held.items()):
                if time.monotonic() - held.used_s > _IDLE_S and not held.lock.locked():
                    del self._held[place]
            return not self._held

    def _part(self, held: _Held, request: Request) -> GraphPart:
        generation, batch = request.before
        if held.part is not None and held.run == request.run and held.after == (generation, batch - 1):
            return held.part
        if held.run != request.run:
            self._plans[request.state] = pickle.loads(request.plan)  # noqa: S301
        part = GraphPart(self._plans[request.state], Part(number=request.number, parts=request.parts))
        part.load(since_snapshot(pl.scan_delta(request.state).filter(earlier(request.before))))
        return part


def _processed(part: GraphPart, request: Request) -> Blobs:
    schemas = part.input_schemas
    sent: dict[str, list[pl.DataFrame]] = {name: [pl.DataFrame(schema=schema)] for name, schema in schemas.items()}
    passing = []
    for name, ipc in request.tables:
        if name in sent:
            sent[name].append(from_ipc(ipc))
        else:
            passing.append((name, ipc))
    tables = {name: pl.concat(rows) for name, rows in sent.items()}

    def published(table: str) -> pl.LazyFrame:
        return pl.scan_delta(request.outputs[table]).filter(earlier(request.before))

    made = part.process(tables, request.span, request.clock, whole=request.whole, published=published)
    left = {**part.written(made, request.before, request.state, request.outputs), TOTALS: tables[TOTALS]}
    return [*((name, to_ipc(rows, "lz4")) for name, rows in left.items() if not rows.is_empty()), *passing]


def _pickled(error: Exception) -> bytes:
    """The ``error``, or one with its text where it cannot leave the process."""
    try:
        return pickle.dumps(error)
    except Exception:
        return pickle.dumps(RuntimeError(traceback.format_exc()))


def _served(host: PartHost, connection: Connection) -> None:
    with connection:
        while True:
            try:
                request: Any = pickle.loads(connection.recv_bytes())  # noqa: S301
                connection.send_bytes(pickle.dumps(host.answer(request), protocol=pickle.HIGHEST_PROTOCOL))
            except (EOFError, OSError):
                return


def _watched(host: PartHost, executor: psutil.Process, address: str) -> None:
    """End the process when its executor has ended, or nobody has asked it for long."""
    begun_s = time.monotonic()
    while executor.is_running() and executor.status() != psutil.STATUS_ZOMBIE:
        time.sleep(_WATCH_S)
        if host.forget_idle() and time.monotonic() - begun_s > _IDLE_S:
            break
    for file in (address, f"{address}.lock"):
        Path(file).unlink(missing_ok=True)
    os._exit(0)


def main(address: str, executor: str) -> None:
    """Hold parts at ``address`` for the tasks of the JVM with the process id ``executor``."""
    host = PartHost()
    with Listener(address, "AF_UNIX", backlog=64) as listener:
        watch = threading.Thread(target=_watched, args=(host, psutil.Process(int(executor)), address), daemon=True)
        watch.start()
        while True:
            threading.Thread(target=_served, args=(host, listener.accept()), daemon=True).start()


if __name__ == "__main__":
    # under its own name: what is pickled by it is found again by the worker
    from recount.engine.exchange import part_hosts

    part_hosts.main(*sys.argv[1:])
