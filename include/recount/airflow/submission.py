"""spark-submit as the connection ``spark_default`` says: master, deploy mode, queue, binary."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk.exceptions import AirflowException

from recount.airflow.drivers import DriverProcess
from recount.airflow.kafka_connection import require_mounted, with_security
from recount.core.errors import Terminal
from recount.core.settings import Role, Settings

DEFAULT_CONNECTION = "spark_default"
_LOG_COLUMNS = "160"
"""The width of a table that a job prints into its log."""
_QUIET = {"spark.log.level": "WARN", "spark.ui.showConsoleProgress": "false"}
_SUBMIT_AND_LEAVE = {
    "spark.yarn.submit.waitAppCompletion": "false",
    "spark.kubernetes.submission.waitAppCompletion": "false",
}


_ROLES: dict[str, Role] = {"audit.py": "audit"}
"""What a job does on Kafka that is no stream's work; a backfill is."""


class Submission:
    """One job of spark_jobs/, ready to be submitted.

    The jars of ``settings`` are on the driver's and the executors' class path, and the job finds the settings in its
    environment; in standalone cluster mode Spark cannot hand an environment on, and the workers' must hold it.
    """

    def __init__(
        self,
        *,
        application: Path,
        arguments: Sequence[str],
        name: str,
        settings: Settings,
        connection: str = DEFAULT_CONNECTION,
        driver_memory: str = "1g",
        java_options: str = "",
    ) -> None:
        jars = sorted(str(jar) for jar in Path(settings.jars).glob("*.jar"))
        if not jars:
            raise Terminal("no Spark jars", given=settings.jars, expected="a folder of jars", remedy="run: make setup")
        settings, of_kafka = with_security(settings, _ROLES.get(application.name, "stream"))
        options = settings.java_options(java_options)
        self._application = str(application)
        self._hook = SparkSubmitHook(
            conn_id=connection,
            name=name,
            application_args=list(arguments),
            jars=",".join(jars),
            driver_memory=driver_memory,
            conf={**_QUIET, **({"spark.driver.extraJavaOptions": options} if options else {})},
        )
        self._resolved = self._hook._resolve_connection()
        self._environment = {"COLUMNS": _LOG_COLUMNS, **driver_environment(os.environ), **of_kafka}
        if self._resolved["master"].startswith("local"):
            self._environment.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        if self.is_cluster and not self._resolved["master"].startswith("spark://"):
            require_mounted(settings)
            self._hook._env_vars = settings.to_environment()

    @property
    def is_cluster(self) -> bool:
        """Whether the driver runs on the cluster (deploy mode cluster) instead of beside Airflow."""
        return bool(self._resolved["deploy_mode"] == "cluster")

    @property
    def command(self) -> list[str]:
        """The words of the spark-submit command."""
        return list(self._hook._build_spark_submit_command(self._application))

    def run(self) -> int:
        """Submit and wait for the end, the job's output in the task's log; returns its exit code.

        On a cluster the exit code of a job that failed is 1, whatever its own was.
        """
        try:
            self._hook.submit(self._application, env=self._environment)
        except AirflowException:
            exit_code = self._hook._submit_sp.returncode if self._hook._submit_sp else 0
            if not exit_code:
                raise
            return int(exit_code)
        return 0

    def launch(self, *, record: Path, log: Path) -> DriverProcess | None:
        """Submit and leave it running: a process of this machine, or None when it runs on the cluster."""
        if self.is_cluster:
            self._hook._conf.update(_SUBMIT_AND_LEAVE)
            self._hook.submit(self._application, env=self._environment)
            return None
        return DriverProcess.launch(self.command, self._environment, record=record, log=log)

    def kill(self) -> None:
        """End a running ``run``."""
        self._hook.on_kill()


def driver_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ`` without anything of Airflow's: its secrets are not the driver's business."""
    return {key: value for key, value in environ.items() if not key.lstrip("_").startswith("AIRFLOW")}
