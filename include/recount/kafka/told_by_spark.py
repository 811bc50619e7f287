"""What Spark says when brokers refuse its Kafka source, or a task gets no schema of a registry, as errors of ours.

To Spark it is a failed job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from recount.core.errors import RecountError, Terminal
from recount.core.registry_errors import RegistryRefused, RegistryUnreachable
from recount.kafka.connection import NotAllowed

_SAID = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+): ([^\n]*)")
_OF_REGISTRY = re.compile(r"\b(RegistryUnreachable|RegistryRefused): [^\n]*?given: '([^'\n]*)'")
_NOT_ADMITTED = frozenset({"SaslAuthenticationException", "SslAuthenticationException", "AuthenticationException"})


@contextmanager
def refusals_told() -> Iterator[None]:
    """Raise ours instead of Spark's exception where Kafka refuses what is done in here, or a task has no schema."""
    try:
        yield
    except RecountError:
        raise
    except Exception as error:
        if refusal := refusal_in(str(error)):
            raise refusal from error
        raise


def refusal_in(said: str) -> RecountError | None:
    """The refusal that a stack trace tells of; None where it tells of none."""
    for name, text in _OF_REGISTRY.findall(said):
        return RegistryUnreachable(text) if name == "RegistryUnreachable" else RegistryRefused(text)
    for name, text in _SAID.findall(said):
        if name.endswith("AuthorizationException"):
            return NotAllowed("Spark to read", f"{name}: {text}")
        if name in _NOT_ADMITTED:
            return Terminal(
                "Kafka does not let Spark in",
                given=f"{name}: {text}",
                expected="the security by which this process was let in, which its executors were given",
                remedy="start again: a password or certificate that was changed meanwhile is read anew",
            )
    return None
