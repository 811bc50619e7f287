"""The spark-submit of the provider, and the line by which a job of Recount says why it has ended."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from recount.audit.audit_session import refused_in
from recount.runtime.log_lines import said_in


class HeardSubmit(SparkSubmitHook):
    """``last_word`` is the line by which the job said why it could not go on.

    ``refused`` are the streams that it said no retry can help to audit, and why. Both stay empty where the job's output
    is not that of spark-submit: on a cluster, in a pod.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.last_word = ""
        self.refused: dict[str, str] = {}

    @property
    def exit_code(self) -> int | None:
        return None if self._submit_sp is None else self._submit_sp.returncode

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._heard(itr))

    def _heard(self, lines: Iterable[str]) -> Iterator[str]:
        for line in lines:
            said = said_in(line)
            if _ENDED.fullmatch(said):
                self.last_word = said
            if found := refused_in(said):
                self.refused[found[0]] = found[1]
            yield line


_ENDED = re.compile(r"recount (stream|audit|backfill): .+")
