"""A backfill as tasks: what would change, and then the repair."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException

from recount.airflow.failures import airflow_failures
from recount.airflow.submission import DEFAULT_CONNECTION, Submission
from recount.core.settings import Settings


class BackfillOperator(BaseOperator):
    """Corrects the windows in which ``audit`` (templated) found grace misses; with ``only_show`` only says how.

    Idempotent: the same audit corrects the same windows once, however often the task runs.
    """

    template_fields = ("audit",)

    def __init__(
        self,
        *,
        stream: str,
        audit: str,
        application: Path,
        only_show: bool = False,
        connection: str = DEFAULT_CONNECTION,
        driver_memory: str = "2g",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.audit = audit
        self.application = str(application)
        self.only_show = only_show
        self.connection = connection
        self.driver_memory = driver_memory
        self._submission: Submission | None = None

    def execute(self, context: Context) -> None:
        with airflow_failures():
            self._submission = Submission(
                application=Path(self.application),
                arguments=["--stream", self.stream, "--audit", self.audit, *(["--dry-run"] if self.only_show else [])],
                name=f"recount backfill {self.stream}",
                settings=Settings.from_environment(os.environ),
                connection=self.connection,
                driver_memory=self.driver_memory,
            )
            exit_code = self._submission.run()
        if exit_code:
            raise AirflowException(f"the backfill failed: exit code {exit_code}, see the log above")

    def on_kill(self) -> None:
        if self._submission:
            self._submission.kill()
