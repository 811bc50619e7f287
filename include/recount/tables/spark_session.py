"""The Spark session of every job: jars, UTC, settings for small tables, and the cluster's shared secret.

The secret is in a file of Spark's settings. Master and workers are started with it (``--properties-file``), drivers
find it by ``RECOUNT_SPARK_SECURITY``; so no command line and no setting has the secret. A worker hands it to the
executors that it starts in the environment of their JVM: Spark offers nothing else.
"""

import logging
import os
import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from py4j.java_collections import ListConverter
from py4j.java_gateway import JavaClass, JavaMember, JVMView, is_instance_of
from py4j.protocol import INPUT_CONVERTER, STATIC_PREFIX, Py4JJavaError, register_input_converter
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from recount.runtime.errors import VARIABLE, Terminal
from recount.runtime.installation import fault_of_mode, shared_classes, spark_jars
from recount.runtime.settings import Settings

SECURITY_VARIABLE = "RECOUNT_SPARK_SECURITY"
SECRET = "spark.authenticate.secret"  # noqa: S105 - a name
CLOSED = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
    "spark.master.rest.enabled": "false",
}
"""Settings of a cluster that takes nobody without its secret, and encrypts what it sends and what it spills.

Spark's defaults are the older version of its protocol, a cipher that does not notice when what it carries is altered,
SASL for clients without the protocol, and a server of the master that takes everybody's applications over HTTP.
"""
_WITHHELD = {"spark.executorEnv._SPARK_AUTH_SECRET": ""}
"""Python workers have the environment of their executor, and run the code of streams: theirs is without the secret."""
_LINE = re.compile(r"(spark\.[\w.-]+)(?:\s*[=:]\s*|\s+)(\S.*)")
_LOOPBACK = "127.0.0.1"
_JARS = {"jars": "spark.jars", "packages": "spark.jars.packages"}
_SECRETS = "(?i)secret|password|token|access[.]?key|credential|jaas|ssl[.]"
"""Names of settings and options of which Spark shows no value in its pages, plans, logs and event logs."""
_TELLS_COLUMNS = "org.apache.spark.sql.execution.LogicalRDD"
"""Warns that the optimizer knows the type of a column better than the plan, by the names of all columns of both."""
_ALWAYS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.redaction.regex": _SECRETS,
    "spark.sql.redaction.options.regex": _SECRETS,
    "spark.sql.parquet.filterPushdown": "false",
}
"""What a Parquet file says of its row groups and pages hides no row: whole files only are passed over, by the table's
log, whose statistics audits compare with the files."""
_UNLESS_SUBMITTED = {
    "spark.sql.shuffle.partitions": "4",
    "spark.buffer.pageSize": "1m",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.stats.collect": "false",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
}
"""Each sort, each join and each table of groups has a page of a task's memory at least. Of 64 MB, as Spark makes them
for a heap of 2 GB, sixteen are all there is: audits have more of them in one task, and four audits run at once. Delta's
default of 50 snapshot partitions doubles the time of a commit on a small table. A task has one core: more threads of
its Polars would only fight for it. PySpark notes for each column in which line of Python it was made, unless it is set
not to. A stream that has read everything asks the brokers again after the polling delay. After Spark's own, 10 ms, it
takes a tenth of a core of the driver, and as much of the brokers."""
_AT_A_TIME = 10
"""So many elements ``java.util.List.of`` takes one by one."""
STANDALONE = "spark://"
_AWAY = ("java.io.IOException", "java.util.concurrent.TimeoutException")
"""Nobody answers; Spark tries again."""
_KINDS = re.compile(r"^(?:[\w.$]+: )+")
"""The names of Java's exceptions before what they say."""
_TELLS_IT_TOO = "org.apache.spark.network.client.TransportClientFactory"
"""Logs a refusal as well, in a hundred lines."""


def new_security() -> str:
    """The text of such a file, with a secret that nobody has seen."""
    settings = {**CLOSED, SECRET: secrets.token_urlsafe(32)}
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def driver_settings(place: str) -> dict[str, str]:
    """The settings of a driver of the cluster whose file is ``place``; none where ``place`` is empty.

    Raises ``Terminal`` with all that is wrong with the file. No error has a value in it.
    """
    if not place:
        return {}
    path = Path(place)
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(place, [error.strerror or "unreadable" if isinstance(error, OSError) else "no text"]) from None
    read = {
        number: _LINE.fullmatch(line)
        for number, line in enumerate(lines, start=1)
        if line and not line.startswith(("#", "!"))
    }
    found = {line[1]: line[2] for line in read.values() if line}
    faults = [
        fault_of_mode(path),
        *(f"line {number} is no setting of Spark" for number, line in read.items() if not line),
    ]
    # Spark would take them for escapes
    faults += [f"{name} has a backslash" for name, value in found.items() if "\\" in value]
    faults += [f"{SECRET} is missing"] if SECRET not in found else []
    if told := [fault for fault in faults if fault]:
        raise _invalid(place, told)
    return {**found, **_WITHHELD}


def _invalid(place: str, faults: list[str]) -> Terminal:
    return Terminal.of("spark-security-unfit", given="; ".join(faults), place=place, variable=SECURITY_VARIABLE)


def session_configuration(jars: str) -> dict[str, str]:
    """Spark's settings for a job whose jars are where ``jars`` says; raises ``Terminal`` where there are none."""
    [(kind, found)] = spark_jars(jars).items()
    return {**_ALWAYS, **_UNLESS_SUBMITTED, _JARS[kind]: found}


def task_environment(settings: Settings) -> dict[str, str]:
    """Spark's settings by which tasks have in their environment what they need of ``settings``."""
    return {f"spark.executorEnv.{VARIABLE}": settings.schema_registry} if settings.schema_registry else {}


def spark_session(
    settings: Settings, app_name: str, *, java_options: str = "", conf: Mapping[str, str] = MappingProxyType({})
) -> SparkSession:
    """The session of a job; master and memory come from spark-submit, or are local[2] and 2 GiB without it.

    What spark-submit was given for the settings that only make small tables fast goes before ours. Raises ``Terminal``
    where a standalone cluster does not let this driver in.

    ``java_options`` are for the JVM that is started here; one that spark-submit has started has its own. ``conf`` are
    more of Spark's settings, unless it was given others.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    submitted = _submitted()
    may_be_submitted = {*_UNLESS_SUBMITTED, *conf}
    for key, value in {**session_configuration(settings.jars), **conf}.items():
        if key not in submitted or key not in may_be_submitted:
            builder = builder.config(key, value)
    for key, value in task_environment(settings).items():
        builder = builder.config(key, value)
    if "spark.master" not in submitted:
        builder = builder.master("local[2]").config("spark.driver.memory", "2g").config("spark.ui.enabled", "false")
        builder = builder.config("spark.driver.bindAddress", _LOOPBACK).config("spark.driver.host", _LOOPBACK)
        if options := settings.java_options(java_options, shared_classes(settings.jars)):
            builder = builder.config("spark.driver.extraJavaOptions", options)
    tell_no_calls()
    if submitted.get("spark.master", "").startswith(STANDALONE):
        _enter(submitted["spark.master"], settings.spark_security)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    make_fewer_calls(session._jvm)
    _tell_no_columns(session)
    return session


def _tell_no_columns(session: SparkSession) -> None:
    """Let Spark tell of no plan that it cannot estimate: thousands of characters of columns, for every batch."""
    log4j: Any = session._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(_TELLS_COLUMNS, log4j.Level.ERROR)


def tell_no_calls() -> None:
    """Let Py4J tell of no call to the JVM, whatever else is logged: options are among them, passwords too.

    It would tell of every connection as well, of the last ones when nobody listens any more.
    """
    logging.getLogger("py4j").setLevel(logging.WARNING)


def _submitted() -> dict[str, str]:
    """The settings that spark-submit gave to the driver's JVM; empty when Python itself starts the JVM."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def _enter(master: str, security: str) -> None:
    """Let the JVM know what its cluster knows drivers by, as spark-submit makes settings known: by its properties.

    Settings of the session would be shown to anybody who asks for them.
    """
    gateway: Any = SparkContext._gateway
    for name, value in driver_settings(security).items():
        gateway.jvm.java.lang.System.setProperty(name, value)
    require_admitted(gateway, master)


class _View(JVMView):  # type: ignore[misc]
    """Keeps the classes that were asked for, and no package: a class of its name may come with a later jar."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaClass):
            found.__class__ = _Class
            setattr(self, name, found)
        return found


class _Class(JavaClass):  # type: ignore[misc]
    """Keeps its static methods, and no static field: its value may change."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


class _Lists(ListConverter):  # type: ignore[misc]
    """Makes an ``ArrayList`` as Py4J does, of ``_AT_A_TIME`` elements a call."""

    def can_convert(self, given: object) -> bool:
        return isinstance(given, list | tuple)

    def convert(self, given: list[Any] | tuple[Any, ...], client: Any) -> Any:
        if len(given) < 3 or any(one is None for one in given):  # List.of takes no null
            return super().convert(given, client)
        of = JavaMember("of", None, f"{STATIC_PREFIX}java.util.List", client)
        first, *others = (of(*given[at : at + _AT_A_TIME]) for at in range(0, len(given), _AT_A_TIME))
        made = JavaClass("java.util.ArrayList", client)(first)
        for part in others:
            made.addAll(part)
        return made


def make_fewer_calls(jvm: JVMView) -> None:
    """Let ``jvm`` keep what it looks up, and get lists in parts.

    PySpark calls the JVM for nearly all that it says of a column: Py4J answers ``jvm.functions`` and ``functions.col``
    by a call each time. In an audit of a small night these are three of ten calls, and the JVM searches all jars for a
    class that is named without its package. Lists it hands over element by element.
    """
    jvm.__class__ = _View
    if not any(isinstance(one, _Lists) for one in INPUT_CONVERTER):
        register_input_converter(_Lists(), prepend=True)


def require_admitted(gateway: Any, master: str) -> None:
    """Return when each of the masters of ``spark://HOST:PORT,HOST:PORT`` has let in a client with the JVM's settings.

    Spark takes a refusal for a master that is away: it tries for a minute, and then says that all masters are
    unresponsive. Here a master that is away is passed over. Raises ``Terminal`` where one refuses.
    """
    jvm = gateway.jvm
    manager = jvm.org.apache.spark.SecurityManager
    # what Scala fills in for arguments that are left out
    others = [getattr(manager, f"$lessinit$greater$default${number}")() for number in (2, 3)]
    settings = jvm.org.apache.spark.SparkConf()
    rpc = jvm.org.apache.spark.rpc.RpcEnv.create("admission", _LOOPBACK, 0, settings, manager(settings, *others), True)
    log4j = jvm.org.apache.logging.log4j
    log4j.core.config.Configurator.setLevel(_TELLS_IT_TOO, log4j.Level.OFF)
    try:
        for address in master.removeprefix(STANDALONE).split(","):
            _ask(gateway, rpc, f"{STANDALONE}{address}")
    finally:
        rpc.shutdown()
        log4j.core.config.Configurator.setLevel(_TELLS_IT_TOO, log4j.Level.WARN)


def _ask(gateway: Any, rpc: Any, master: str) -> None:
    address = gateway.jvm.org.apache.spark.rpc.RpcAddress.fromSparkURL(master)
    try:
        # one who proves himself is refused here; one who does not, when he asks for something
        rpc.createClient(address)
        rpc.setupEndpointRef(address, "Master")
    except Py4JJavaError as error:
        causes = list(_causes(error.java_exception))
        if any(is_instance_of(gateway, cause, kind) for cause in causes for kind in _AWAY):
            return
        said = _KINDS.sub("", str(causes[-1].toString()).partition("\n")[0])
        raise Terminal.of("spark-cluster-refuses", given=f"{master}: {said}", variable=SECURITY_VARIABLE) from None


def _causes(error: Any) -> Iterator[Any]:
    while error is not None:
        yield error
        error = error.getCause()
