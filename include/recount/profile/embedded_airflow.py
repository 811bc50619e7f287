"""A real Airflow: every component its own process, authentication on, everything in the home.

The components run apart (not as ``airflow standalone``), so that one that ends takes no other with it, each has a
log of its own, and a restart can be waited for. The metadata database is SQLite in WAL mode: it needs nothing
installed, and carries the handful of writers of one machine. Production takes PostgreSQL, see docker-compose.yml.
"""

import json
import os
import secrets
import subprocess
import sys
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx

from recount.profile import daemon
from recount.profile.daemon import LOOPBACK, Daemon, Started, free_ports, require_free
from recount.profile.dag_runs import USERNAME, AirflowApi
from recount.profile.home import Home, Project
from recount.runtime.errors import Terminal, Transient

_API_SERVER = "airflow-api-server"
_LOG_SERVER = "airflow-logs"
_COMPONENTS = ("api-server", "scheduler", "dag-processor", "triggerer")
# The components that write heartbeats; the api-server shows them, and so reports itself.
_REPORTING = ("scheduler", "dag_processor", "triggerer")
_START_LIMIT_S = 180.0
_FAB = "apache-airflow-providers-fab"
AUDIT_POOL = "recount-audits"
"""The pool of the nightly audits. It has one slot: a machine has no memory for several of their Spark applications."""


class EmbeddedAirflow(Started):
    """Airflow on the loopback address, with the DAGs of ``dags``.

    ``environment`` reaches every DAG and task. The one user is ``admin`` with a password that is made here, once per
    home; there is no default one. ``auth_manager`` names another one than Airflow's simple one, which keeps its users
    in the database as FAB does. A context manager: started on entry, stopped on exit. ``ports`` are those of an Airflow
    that an earlier object of this home has started.
    """

    username = USERNAME

    def __init__(
        self,
        *,
        home: Home,
        project: Project,
        environment: Mapping[str, str],
        dags: Path | None = None,
        spark_master: str = "local[*]",
        auth_manager: str | None = None,
        ports: Sequence[int] = (),
    ) -> None:
        self._home = home
        self._dags = dags or project.dags
        self._given = dict(environment)
        self._spark_master = spark_master
        self._auth_manager = auth_manager
        self.ports = list(ports) or free_ports(2)
        self._port, self._log_port = self.ports
        self._daemons: list[Daemon] = []
        self.api = AirflowApi(self.url, home.airflow_passwords)

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._port}"

    @property
    def password_file(self) -> Path:
        return self._home.airflow_passwords

    @property
    def has_password(self) -> bool:
        """Whether an earlier start in this home has made (and shown) the password."""
        return self.password_file.exists()

    @property
    def password(self) -> str:
        return self._kept(self.password_file.name, lambda: {self.username: secrets.token_urlsafe(12)})[self.username]

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of its processes: with it, the ``airflow`` command speaks to this Airflow."""
        # Settings of another Airflow of the same user must not leak in.
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        keys = self._kept("keys.json", _new_keys)
        return inherited | {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "GX_ANALYTICS_ENABLED": "false",
            "AIRFLOW_HOME": str(self._home.airflow),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": self._spark_master}),
            "AIRFLOW__API_AUTH__JWT_SECRET": keys["jwt"],
            "AIRFLOW__API__BASE_URL": self.url,
            "AIRFLOW__API__HOST": LOOPBACK,
            "AIRFLOW__API__PORT": str(self._port),
            "AIRFLOW__API__SECRET_KEY": keys["session"],
            "AIRFLOW__CORE__DAGS_FOLDER": str(self._dags),
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__FERNET_KEY": keys["fernet"],
            "AIRFLOW__CORE__HOSTNAME_CALLABLE": "recount.profile.daemon.loopback",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PARALLELISM": "4",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(self.password_file),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{self.username}:ADMIN",
            **({"AIRFLOW__CORE__AUTH_MANAGER": self._auth_manager} if self._auth_manager else {}),
            # A busy machine of two cores must not look like a broken one.
            "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "60",
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self._home.airflow / 'airflow.db'}?timeout=60",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "10",
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(self._home.logs / "airflow"),
            "AIRFLOW__LOGGING__COLORED_CONSOLE_LOG": "False",
            "AIRFLOW__LOGGING__DAG_PROCESSOR_CHILD_PROCESS_LOG_DIRECTORY": str(self._home.logs / "airflow" / "dags"),
            "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(self._log_port),
            "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(self._log_port),
            # After a crash, tasks and triggers of the former processes are taken over within a minute.
            "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "15",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            **self._given,
        }

    def start(self) -> None:
        """Start the components that do not run; returns when each has said that it is healthy.

        Raises ``Terminal`` with the end of the log when one ends instead, ``Transient`` after three minutes.
        """
        self._home.create()
        environment = self.environment
        _ = self.password
        airflow = Path(sys.executable).with_name("airflow")
        self._migrate(airflow, environment)
        if self._auth_manager:
            self._make_user(airflow, environment)
        before = time.time()
        running = {one.name for one in self._daemons if one.alive}
        self._daemons = [one for one in self._daemons if one.name in running]
        for component in _COMPONENTS:
            if f"airflow-{component}" in running:
                continue
            # Their own log servers would listen on every address of the machine; one on the loopback does.
            quiet = ["--skip-serve-logs"] if component in ("scheduler", "triggerer") else []
            command: list[str | Path] = [airflow, component, *quiet]
            self._daemons.append(Daemon.start(self._home, f"airflow-{component}", command, environment))
        if _LOG_SERVER not in running:
            self._daemons.append(self._start_log_server(environment))
        self._wait(before)
        self._make_pool()

    def _start_log_server(self, environment: Mapping[str, str]) -> Daemon:
        serve_logs = ["uvicorn", "--factory", "airflow.utils.serve_logs.log_server:get_app"]
        command = [sys.executable, "-m", *serve_logs, "--host", LOOPBACK, "--port", str(self._log_port)]
        return Daemon.start(self._home, _LOG_SERVER, command, environment)

    def adopt(self) -> None:
        """Take over the components that run in this home, at the ports that were given."""
        self._daemons = list(daemon.alive(self._home, "airflow-"))
        running = {one.name for one in self._daemons}
        for name, port in ((_API_SERVER, self._port), (_LOG_SERVER, self._log_port)):
            if name not in running:
                require_free([port], name)

    def stop(self) -> None:
        """Stop all components and running tasks. Stream drivers go on: they are not Airflow's.

        The api-server stops last: a task that is to end reports its state to it, and would try for half a minute.
        """
        answering = [one for one in self._daemons if one.name == _API_SERVER]
        daemon.stop(self._home, [one for one in self._daemons if one not in answering], patience_s=20)
        daemon.stop(self._home, answering, patience_s=20)
        self._daemons.clear()

    def restart(self) -> None:
        """Stop and start on the same port, with the same user and history."""
        self.stop()
        self.start()

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call its REST API, as ``AirflowApi.request`` does."""
        return self.api.request(method, path, body)

    def _migrate(self, airflow: Path, environment: Mapping[str, str]) -> None:
        """Make or upgrade the database, once per version of Airflow and of FAB, whose tables are made where it is."""
        fab = f"-{version(_FAB)}" if find_spec("flask_appbuilder") else ""
        done = self._home.airflow / f"migrated-{version('apache-airflow')}{fab}"
        if not done.exists():
            migration = Daemon.start(self._home, "airflow-migration", [airflow, "db", "migrate"], environment)
            migration.wait(self._home, _START_LIMIT_S)
            done.touch()

    def _make_user(self, airflow: Path, environment: Mapping[str, str]) -> None:
        """Make the user in the database, unless there is one of that name; no command line shows the password."""
        names = ["--username", self.username, "--firstname", "Recount", "--lastname", self.username]
        ended = subprocess.run(
            [airflow, "users", "create", *names, "--email", f"{self.username}@localhost", "--role", "Admin"],
            env=dict(environment),
            cwd=self._home.path,
            input=f"{self.password}\n{self.password}\n",
            capture_output=True,
            text=True,
            timeout=_START_LIMIT_S,
            start_new_session=True,  # no terminal, so that the password is read from the input
            check=False,
        )
        if ended.returncode != 0:
            raise Terminal.of(
                "airflow-user-not-made",
                given=ended.stderr[-1_000:],
                username=self.username,
                auth_manager=self._auth_manager,
            )

    def _make_pool(self) -> None:
        """Make the pool of the audits; the slots of one that is there are its owner's."""
        pools = self.request("GET", f"/api/v2/pools?pool_name_pattern={AUDIT_POOL}")["pools"]
        if AUDIT_POOL not in (pool["name"] for pool in pools):
            said = "Nightly audits: one Spark application at a time"
            self.request(
                "POST",
                "/api/v2/pools",
                {"name": AUDIT_POOL, "slots": 1, "description": said, "include_deferred": False},
            )

    def _wait(self, since_s: float) -> None:
        """Wait until every component has reported itself healthy after ``since_s`` (earlier reports are dropped)."""
        deadline = time.monotonic() + _START_LIMIT_S
        while time.monotonic() < deadline:
            for component in self._daemons:
                component.require_alive()
            if self._heartbeats_since(since_s):
                return
            time.sleep(0.5)
        raise Transient.of("airflow-not-up", limit_s=_START_LIMIT_S, logs=self._home.logs)

    def _heartbeats_since(self, since_s: float) -> bool:
        try:
            health = httpx.get(f"{self.url}/api/v2/monitor/health", timeout=10).json()
        except (httpx.TransportError, json.JSONDecodeError):
            return False
        beats = [health.get(name, {}).get(f"latest_{name}_heartbeat") for name in _REPORTING]
        return all(beat and datetime.fromisoformat(beat).timestamp() >= since_s for beat in beats)

    def _kept(self, name: str, make: Callable[[], dict[str, str]]) -> dict[str, str]:
        """The secrets of this home in the file ``name``, made at the first call, readable by their owner only."""
        file = self._home.airflow / name
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch(mode=0o600)
            file.write_text(json.dumps(make()))
        kept: dict[str, str] = json.loads(file.read_text())
        return kept


def _new_keys() -> dict[str, str]:
    return {
        "fernet": urlsafe_b64encode(secrets.token_bytes(32)).decode(),
        "jwt": secrets.token_urlsafe(48),
        "session": secrets.token_urlsafe(48),
    }
