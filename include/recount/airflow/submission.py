"""spark-submit by the connection ``spark_default`` (master, deploy mode, queue, binary), and how a job ended.

The security of Kafka may be in a connection as well: user and password are its login and password; every other key of
the setting, by its name, is a key of its extra. The kind of the connection does not matter. A driver cannot read it.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk import Connection as AirflowConnection
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from recount.airflow.drivers import DriverPod, DriverProcess
from recount.declare.limits import Resources
from recount.kafka.security import AIRFLOW, PASSWORD, USERNAME, VARIABLE, InvalidSecurity, keys_at, security_from
from recount.runtime.console import EXIT_TERMINAL, EXIT_TRANSIENT
from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import require_extra, shared_classes, spark_jars, write_secret
from recount.runtime.settings import Role, Settings

if TYPE_CHECKING:
    from recount.airflow.heard_submit import HeardSubmit

_LOG = logging.getLogger(__name__)
DEFAULT_CONNECTION = "spark_default"
DRIVER_MEMORY = "2g"
"""The heap of a driver's JVM where nobody has said another one."""
OF_EVERY_DRIVER = {
    "COLUMNS": "160",  # the width of a table that a job prints into its log
    "MALLOC_ARENA_MAX": "2",  # a heap for each of its hundred threads keeps memory that none of them uses
}
"""Of its environment, unless Airflow's own says otherwise."""
_QUIET = {"spark.log.level": "WARN", "spark.ui.showConsoleProgress": "false"}
_SUBMIT_AND_LEAVE = {"spark.yarn.submit.waitAppCompletion": "false"}
_LOOK_EVERY_S = 5.0
_SILENCES = 60
"""So often in a row Kubernetes may not answer while a job is waited for."""
_ROLES: dict[str, Role] = {"audit.py": "audit"}
"""What a job does on Kafka that is no stream's work; a backfill is."""


def keys_of(connection: str) -> dict[str, str]:
    """The keys of the Airflow connection of that name; raises ``InvalidSecurity`` where there is none."""
    place = f"{AIRFLOW}{connection}"
    try:
        found = AirflowConnection.get(connection)
    except AirflowNotFoundException:
        raise InvalidSecurity(place, ["there is no such connection in Airflow"]) from None
    extra = found.extra_dejson
    if not all(isinstance(value, str) for value in extra.values()):
        raise InvalidSecurity(place, ["the extra is not a JSON object of texts"])
    return {USERNAME: found.login or "", PASSWORD: found.password or "", **extra}


def with_security(settings: Settings, role: Role) -> tuple[Settings, Mapping[str, str]]:
    """``settings`` for a driver in ``role``, and what of them its environment must say.

    What is in an Airflow connection is written to a file below ``settings.run`` that only this user can read.
    """
    settings = settings.acting_as(role)
    place = settings.kafka_security
    if not place:
        return settings, {}
    if place.startswith(AIRFLOW):
        keys = {name: value for name, value in keys_at(place).items() if value}
        security_from(keys, place)
        folder = Path(settings.run) / "kafka-security"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_secret(folder / f"{role}.json", json.dumps(keys))
        settings = replace(settings, kafka_security=str(folder / f"{role}.json"))
    return settings, {VARIABLE: settings.kafka_security}


def require_mounted(settings: Settings) -> None:
    """Raise ``Terminal`` where a driver on another machine would look for a file that is on this one only."""
    if Path(settings.kafka_security).parent == Path(settings.run) / "kafka-security":
        raise Terminal.of("security-not-on-the-cluster", given=settings.kafka_security, variable=VARIABLE)


class Submission:
    """One job of a project, or of those that come with Recount, ready to be submitted, once.

    Where the master is Kubernetes and drivers run there, the driver is a pod; its image has the job and the jars at the
    places that they have here.

    The jars of ``settings`` are on the driver's and the executors' class path, and the job finds the settings in its
    environment. Raises ``Terminal`` where there are no jars, no such connection, or Spark has not what it asks for.
    """

    def __init__(
        self,
        *,
        application: Path,
        arguments: Sequence[str],
        name: str,
        settings: Settings,
        connection: str = DEFAULT_CONNECTION,
        resources: Resources | None = None,
        java_options: str = "",
    ) -> None:
        settings, of_kafka = with_security(settings, _ROLES.get(application.name, "stream"))
        self._arguments = list(arguments)
        self._name = name
        self._settings = settings
        self._connection = connection
        self._resources = resources or Resources()
        self._place = _Place.of(connection, self._resources)
        self.is_cluster = self._place.is_cluster
        # an archive of this machine: no other has it
        archive = "" if self.is_cluster else shared_classes(settings.jars)
        self._java_options = settings.java_options(java_options, archive)
        self._pod: DriverPod | None = None
        self._application, self._jars = str(application), spark_jars(settings.jars)
        if self.is_cluster:
            require_mounted(settings)
        if self._place.namespace is not None:
            require_extra("kubernetes")
            self._pod = DriverPod.named(name, self._place.namespace)
            self._application = _in_the_image(str(application.absolute()))
            self._jars = {kind: _in_the_image(said) if kind == "jars" else said for kind, said in self._jars.items()}
        self._environment = {**OF_EVERY_DRIVER, **driver_environment(os.environ), **of_kafka}
        if self._place.master.startswith("local"):
            self._environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

    @property
    def command(self) -> list[str]:
        """The words of the spark-submit command.

        The provider has no public way to them, and a driver that outlives its task cannot be a child of its hook.
        """
        return list(self._hook._build_spark_submit_command(self._application))

    def run(self, look_every_s: float = _LOOK_EVERY_S) -> str | None:
        """Submit and wait for the end, the job's output in the task's log.

        Returns None, or, where it has failed, what the provider says of it: exit code and last lines. The output of a
        pod is in its own log. Raises what the job itself raised, ``Terminal`` or ``Transient``, with its own line.
        """
        try:
            self._hook.submit(self._application, env=self._environment)
        except AirflowException as error:
            if self._hook.last_word and self._hook.exit_code == EXIT_TERMINAL:
                raise Terminal(self._hook.last_word) from None
            if self._hook.last_word and self._hook.exit_code == EXIT_TRANSIENT:
                raise Transient(self._hook.last_word) from None
            return str(error)
        return _failure_of(self._pod, look_every_s) if self._pod else None

    @property
    def refused(self) -> Mapping[str, str]:
        """The streams that ``run`` has not audited, where the job said that no retry can help, and why."""
        return self._hook.refused

    def launch(self, *, record: Path, log: Path) -> DriverProcess | DriverPod | None:
        """Submit and leave it running: a process of this machine, a pod, or None when it runs on another cluster."""
        if self._pod:
            self._hook.submit(self._application, env=self._environment)
            self._pod.write(record)
            return self._pod
        if self.is_cluster:
            self._hook_with(_SUBMIT_AND_LEAVE).submit(self._application, env=self._environment)
            return None
        return DriverProcess.launch(self.command, self._environment, record=record, log=log)

    def kill(self) -> None:
        self._hook.on_kill()
        if self._pod:
            self._pod.end()

    @cached_property
    def _hook(self) -> HeardSubmit:
        return self._hook_with(self._pod.conf if self._pod else {})

    def _hook_with(self, more: Mapping[str, str]) -> HeardSubmit:
        size = self._resources
        options = {"spark.driver.extraJavaOptions": self._java_options} if self._java_options else {}
        # it imports a client of Kubernetes, which takes a second: not where a DAG is parsed
        from recount.airflow.heard_submit import HeardSubmit

        return HeardSubmit(
            conn_id=self._connection,
            name=self._name,
            application_args=self._arguments,
            jars=self._jars.get("jars"),
            packages=self._jars.get("packages"),
            driver_memory=size.driver_memory or DRIVER_MEMORY,
            num_executors=size.executors,
            executor_cores=size.executor_cores or (size.executors and 1),
            executor_memory=size.executor_memory,
            # a standalone cluster counts cores, not executors
            total_executor_cores=size.total_cores if self._place.master.startswith("spark://") else None,
            conf={**_QUIET, **size.conf, **options, **more},
            env_vars=self._settings.to_environment() if self.is_cluster else None,
            # spark-submit ends when the pod is made: how it goes on is asked of Kubernetes
            track_driver_via_k8s_api=self._pod is not None,
        )


class JobOperator(BaseOperator):
    """A task that submits one job and waits for its end; ``java_options`` are for the driver's JVM."""

    def __init__(
        self,
        *,
        application: Path,
        connection: str = DEFAULT_CONNECTION,
        spark_resources: Resources | None = None,
        java_options: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.application = str(application)
        self.connection = connection
        self.spark_resources = spark_resources or Resources()
        self.java_options = java_options
        self._submission: Submission | None = None

    def submission(self, settings: Settings, name: str, *arguments: str) -> Submission:
        """The job with these ``arguments``, not submitted yet."""
        self._submission = Submission(
            application=Path(self.application),
            arguments=arguments,
            name=name,
            settings=settings,
            connection=self.connection,
            resources=self.spark_resources,
            java_options=self.java_options,
        )
        return self._submission

    def on_kill(self) -> None:
        if self._submission:
            self._submission.kill()


def _failure_of(pod: DriverPod, look_every_s: float) -> str | None:
    """Wait for its end. Why the pod has failed; None, and it is taken away, where it has not."""
    _LOG.info("the job is %s; its log: kubectl logs --follow --namespace %s %s", pod.name, pod.namespace, pod.pod)
    silences = 0
    while True:
        try:
            if pod.has_ended():
                break
            silences = 0
        except Transient as error:
            silences += 1
            if silences == _SILENCES:
                raise
            _LOG.warning("looking again: %s", error)
        time.sleep(look_every_s)
    failure = pod.failure()
    if failure is None:
        pod.end()
    elif pod.exit_code() == EXIT_TERMINAL:
        raise Terminal(failure, expected="a job that can go on", remedy="its last line says what to do")
    return failure


def driver_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without anything of Airflow's: its secrets are not the driver's business."""
    return {key: value for key, value in environ.items() if not key.lstrip("_").startswith("AIRFLOW")}


@dataclass(frozen=True, kw_only=True)
class _Place:
    """Where the applications of a connection run.

    Drivers run there too where ``is_cluster`` (deploy mode cluster); on Kubernetes they are pods in ``namespace``.
    """

    master: str
    is_cluster: bool
    namespace: str | None = None

    @classmethod
    def of(cls, name: str, resources: Resources) -> Self:
        """Read it from the connection ``name``, and the namespace from Spark's settings of ``resources`` first."""
        try:
            connection = BaseHook.get_connection(name)
        except AirflowNotFoundException as error:
            raise Terminal.of("no-connection-to-spark", given=name, name=name.upper()) from error
        host = str(connection.host or "")
        master = host if connection.conn_type == "spark" and ("://" in host or not connection.port) else ""
        master = master or f"{connection.conn_type}://{host}"
        extra = connection.extra_dejson
        if extra.get("deploy-mode") != "cluster":
            return cls(master=master, is_cluster=False)
        if master.startswith("spark://"):
            raise Terminal.of("no-deploy-mode-cluster", given=f"connection {name}: {master}, deploy-mode cluster")
        if not master.startswith("k8s://"):
            return cls(master=master, is_cluster=True)
        namespace = resources.conf.get("spark.kubernetes.namespace", extra.get("namespace"))
        if not namespace:
            raise Terminal.of(
                "no-namespace-for-pods", given=f"connection {name}: {master}, deploy-mode cluster", name=name
            )
        return cls(master=master, is_cluster=True, namespace=namespace)


def _in_the_image(paths: str) -> str:
    """Paths of this machine, with commas, that are looked for in the image of a pod and sent nowhere."""
    return ",".join(f"local://{path}" for path in paths.split(","))
