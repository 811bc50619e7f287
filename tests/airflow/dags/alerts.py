"""A notifier that writes into a file."""

import os
from pathlib import Path

from airflow.sdk import BaseNotifier, Context


class ToFile(BaseNotifier):
    """Writes each exception to the file ``TOLD``."""

    def notify(self, context: Context) -> None:
        with Path(os.environ["TOLD"]).open("a") as told:
            print(context["exception"], file=told)  # type: ignore[typeddict-item]


notifier = ToFile()
