"""By what a standalone Spark cluster and its drivers know each other: a file of Spark's settings that all of them read.

Master and workers are started with it (``--properties-file``), drivers find it by ``RECOUNT_SPARK_SECURITY``; so no
command line and no setting has the secret. A worker hands it to the executors that it starts, in the environment of
their JVM: Spark has no other way.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path

from recount.core.errors import Terminal
from recount.secret_file import fault_of_mode

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
SASL for whoever does not speak the protocol, and a server of the master that takes everybody's applications over HTTP.
"""
_WITHHELD = {"spark.executorEnv._SPARK_AUTH_SECRET": ""}
"""Python workers have the environment of their executor, and run the code of streams: theirs is without the secret."""
_LINE = re.compile(r"(spark\.[\w.-]+)(?:\s*[=:]\s*|\s+)(\S.*)")


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
    return Terminal(
        f"invalid Spark security in {place}",
        given="; ".join(faults),
        expected="lines name=value of Spark, as the cluster's master and workers read them with --properties-file",
        remedy=f"mend the file, or let {SECURITY_VARIABLE} name another one; docs/security.md says what is in it",
    )
