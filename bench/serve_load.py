"""``make bench-serve``: how fast ``recount serve`` answers many clients at once, from the tables of a stream."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from bench.cluster import cluster
from bench.contenders import RECOUNT
from bench.flow import Flow
from bench.jobs import COUNTS_PER_USER
from bench.process_tree import ProcessTree
from bench.report import Place, Report
from bench.running import Bench, Run
from bench.session import machine
from bench.table import Rows
from recount.kafka.connection import Connection
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings

NAME = "serve"
_WARM_UP_RECORDS = 5_000
_KEYS = 1_000
_STARTED_WITHIN_S = 60
_MILLISECONDS = {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}
_SCRIPT = """\
local paths = {paths}
local headers = {{ ["Authorization"] = "Bearer {token}" }}
function request()
  return wrk.format("GET", paths[math.random(#paths)], headers)
end
"""


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What ``clients`` that ask again as soon as they are answered met; latencies in milliseconds.

    ``failed`` are answers other than 200, and connections that broke. ``cores`` are those that the server used.
    """

    what: str
    clients: int
    per_second: float
    p50_ms: float
    p99_ms: float
    failed: int
    cores: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server that runs."""

    url: str
    token: str
    pid: int
    path: str
    """Of the rows of the sink."""

    def get(self, path: str) -> httpx.Response:
        """One answer; raises where it is not 200."""
        answer = httpx.get(self.url + path, headers={"Authorization": f"Bearer {self.token}"}, timeout=60)
        answer.raise_for_status()
        return answer


def questions(served: Served) -> Iterator[tuple[str, Sequence[str]]]:
    """What is asked, each with its paths: of many keys one is drawn for each request."""
    rows = served.get(f"{served.path}?limit={_KEYS}").json()["rows"]
    keys = sorted({row["user_id"] for row in rows})
    recorded_ms = served.get(served.path).json()["as_of"]["recorded_ms"]
    yield "the current row of a key", [f"{served.path}/current/{key}" for key in keys]
    yield "the windows of a key", [f"{served.path}?key={key}" for key in keys]
    yield "the same as of five seconds before", [f"{served.path}?key={key}&at={recorded_ms - 5_000}" for key in keys]
    yield "the newest 100 rows", [served.path]
    yield "what streams there are", ["/streams"]


def loaded(served: Served, what: str, paths: Sequence[str], *, clients: int, seconds: int, folder: Path) -> Loaded:
    """Let ``clients`` ask for ``seconds``."""
    script = folder / "asking.lua"
    told = ", ".join(json.dumps(path) for path in paths)
    script.write_text(_SCRIPT.format(paths=f"{{ {told} }}", token=served.token))
    command = [_wrk(), "--threads", "1", "--connections", str(clients), "--duration", f"{seconds}s", "--latency"]
    with ProcessTree(served.pid) as tree:
        before_s, begun_s = tree.cpu_s, time.monotonic()
        ran = subprocess.run(
            [*command, "--timeout", "30s", "--script", str(script), served.url],
            capture_output=True,
            text=True,
            check=True,
        )
        cores = (tree.cpu_s - before_s) / (time.monotonic() - begun_s)
        memory_bytes = tree.peak_bytes
    return Loaded(what=what, clients=clients, cores=cores, memory_bytes=memory_bytes, **read(ran.stdout))


def read(told: str) -> dict[str, Any]:
    """The figures of what ``wrk`` prints, in milliseconds."""
    latencies = {
        share: float(number) * _MILLISECONDS[unit]
        for share, number, unit in re.findall(r"^ +(\d+)% +([\d.]+)(us|ms|s|m) *$", told, re.MULTILINE)
    }
    if not latencies:
        raise Terminal("nothing was answered", given=told[-500:], expected="an answer", remedy="give it more --seconds")
    broken = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", told)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    [per_second] = re.findall(r"^Requests/sec: +([\d.]+)$", told, re.MULTILINE)
    return {
        "per_second": float(per_second),
        "p50_ms": latencies["50"],
        "p99_ms": latencies["99"],
        "failed": sum(map(int, broken.groups() if broken else ())) + (int(refused[1]) if refused else 0),
    }


@contextmanager
def serving(run: Run, source: str, connection: Connection, root: Path) -> Iterator[Served]:
    """``recount serve`` on the tables of ``run``."""
    token, port = secrets.token_urlsafe(24), _free_port()
    places: dict[str, Any] = {name: str(run.state / name) for name in ("checkpoints", "reports", "logs", "run", "jars")}
    settings = Settings(
        profile="embedded",
        bootstrap_servers=connection.bootstrap_servers,
        data=f"{run.state}/tables",
        topologies="bench.served",
        **places,
    )
    names = {"job": run.job.name, "stream": run.application, "source": source, "output": run.output}
    environment = {
        **os.environ,
        **settings.to_environment(),
        "RECOUNT_TOKEN": token,
        "BENCH_SERVED": json.dumps(names),
        "PYTHONPATH": f"{root}:{root / 'include'}",
    }
    command = [str(Path(sys.executable).with_name("recount")), "serve", "--port", str(port), "--rate", "1000000/second"]
    with (run.bench.folder / "serve.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=run.bench.folder, env=environment, stdout=log, stderr=log)
    path = f"/streams/{run.application}/{run.output}"
    served = Served(url=f"http://127.0.0.1:{port}", token=token, pid=process.pid, path=path)
    try:
        _wait_for(served)
        yield served
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(served: Served) -> None:
    deadline = time.monotonic() + _STARTED_WITHIN_S
    while True:
        try:
            served.get("/streams")
        except httpx.TransportError as error:
            if time.monotonic() > deadline:
                raise Transient("recount serve does not answer", given=str(error), remedy="read serve.log") from error
            time.sleep(0.2)
        else:
            return


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _wrk() -> str:
    found = shutil.which("wrk")
    if found is None:
        raise Terminal("no load generator", given="no program wrk", expected="wrk", remedy="apt-get install wrk")
    return found


_TEXT = """\
# recount serve under load

Generated by `make bench-serve ARGS="--publish"` from [serve.json](serve.json); do not edit.

One `recount serve` on the tables of a stream that has read {records:,} orders of 10,000 users into 5-minute windows:
{rows:,} results. Each client asks again as soon as it is answered ([wrk](https://github.com/wg/wrk), one thread, on the
same machine), for {seconds} s a row; of keys any of {keys:,} is drawn. **failed** are answers other than 200 and broken
connections, **cores** those that the server used, **memory** its largest proportional set.

{cores} cores, {memory_gib} GiB.
"""


def main(
    records: Annotated[int, typer.Option(min=10_000, help="Orders that the stream reads.")] = 500_000,
    seconds: Annotated[int, typer.Option(min=1, help="How long each question is asked.")] = 20,
    clients: Annotated[list[int] | None, typer.Option(help="How many at once. Default: 1 and 50.")] = None,
    publish: Annotated[bool, typer.Option("--publish", help="Write the page to docs/operations.")] = False,
) -> None:
    """Fails where an answer was none, or another one after the load than before."""
    _wrk()
    place = Place.new()
    flow = Flow(topic="orders", records=records)
    warm_up = Flow(topic="warm-up-orders", records=_WARM_UP_RECORDS, seed=1)
    found: list[Loaded] = []
    with cluster(place.folder / "kafka", place.project) as kafka:
        for each in (flow, warm_up):
            kafka.create_source(each.topic)
            each.produce(kafka.connection.producer({"linger.ms": 50}))
        bench = Bench(project=place.project, cluster=kafka, folder=place.folder, max_offsets=50_000)
        with bench.prepared(RECOUNT, COUNTS_PER_USER) as run:
            _run_to_the_end(run, flow, warm_up)
            place.tell("the stream has read everything")
            with serving(run, flow.topic, kafka.connection, place.project.root) as served:
                rows = served.get(f"{served.path}?limit=1").json()["total"]
                for what, paths in questions(served):
                    before = served.get(paths[0]).json()
                    for at_once in clients or (1, 50):
                        found.append(loaded(served, what, paths, clients=at_once, seconds=seconds, folder=place.folder))
                        place.tell(str(found[-1]))
                    require_same(before, served.get(paths[0]).json(), what)
    settings = {"records": records, "rows": rows, "seconds": seconds, "keys": _KEYS}
    Report(
        name=NAME,
        text=_TEXT.format(**settings, **machine()),
        tables=[_table(found)],
        document={"machine": machine(), "settings": settings, "found": [asdict(one) for one in found]},
    ).hand_over(place, publish=publish)
    failed = [f"{one.what}, {one.clients} clients: {one.failed}" for one in found if one.failed]
    if failed:
        sys.exit(f"not answered: {'; '.join(failed)}")


def require_same(before: Mapping[str, object], after: Mapping[str, object], what: str) -> None:
    """Raise ``Terminal`` unless both answers are the same but for when they were asked for."""
    rows = [one.get("rows", one) if "rows" in one else _timeless(one) for one in (before, after)]
    if rows[0] != rows[1]:
        raise Terminal(f"another answer after the load: {what}", given=str(rows[1])[:500], expected=str(rows[0])[:500])


def _timeless(answer: Mapping[str, object]) -> str:
    return re.sub(r'"(asked|age)_ms": \d+', "", json.dumps(answer))


def _run_to_the_end(run: Run, flow: Flow, warm_up: Flow) -> None:
    program = run.started(flow.topic, records=flow.records, **run.warm_up(warm_up))
    try:
        program.wait_for("measured")
        program.finish()
    finally:
        program.kill()


def _table(found: Sequence[Loaded]) -> Rows:
    head = ["question", "clients", "answers/s", "p50 ms", "p99 ms", "failed", "cores", "memory MiB"]
    body = [
        [
            one.what,
            str(one.clients),
            f"{one.per_second:,.0f}",
            f"{one.p50_ms:,.1f}",
            f"{one.p99_ms:,.1f}",
            str(one.failed),
            f"{one.cores:.2f}",
            f"{one.memory_bytes / 2**20:,.0f}",
        ]
        for one in found
    ]
    return Rows(name="load", title="Answers", head=head, body=body)


if __name__ == "__main__":
    typer.run(main)
