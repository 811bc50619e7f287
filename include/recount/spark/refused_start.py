"""What a driver says of a stream that it has not started."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import SparkSession

from recount.core.errors import RecountError
from recount.core.settings import Settings
from recount.declarations import DeclarationLog
from recount.kafka.connection import Connection, Fenced
from recount.kafka.lease import Lease
from recount.kafka.status import MOST_CHARACTERS
from recount.spark.alone import is_driven, status_of
from recount.spark.driver_metrics import DriverMetrics
from recount.spark.runner import is_final
from recount.spark.stream_reports import first_status

_LOG = logging.getLogger(__name__)


def publish_refusal(
    session: SparkSession, settings: Settings, stream: str, error: BaseException, metrics: DriverMetrics
) -> None:
    """Say for a stream that was refused before it took its lease why it does not run: nobody else will.

    Where another driver runs it, nothing is said: the lease is that one's.
    """
    connection = Connection.of(settings)
    try:
        if isinstance(error, Fenced) or is_driven(status_of(connection, stream)):
            return
        with ExitStack() as held:
            lease = Lease.acquire(connection, stream)
            held.callback(lease.release)
            status = first_status(stream, lease.epoch, session)
            said = str(error)[:MOST_CHARACTERS]
            version = DeclarationLog(settings.data, stream).version()
            failed = replace(status, state="failed", error=said, final=is_final(error), stream_version=version)
            lease.publish(failed)
            metrics.told(failed)
    except RecountError as unheard:
        _LOG.warning("the failure could not be published: %s", unheard)
