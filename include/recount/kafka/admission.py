"""Whether the brokers let this process in, asked once, before its first client of a secured cluster.

librdkafka takes a wrong password and an expired certificate for an outage: it tries again for ever, tells a callback
of each time, and lets the calls of its clients time out. So a client that waits asks here for the reported errors.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from recount.kafka.security import Security
from recount.runtime.errors import Terminal, Transient

PATIENCE_S = 15.0


_POLL_S = 0.02


_CERTIFICATE_ALERTS = range(42, 50)
"""TLS alerts by which a server refuses the certificate of a client, RFC 8446 section 6.2."""


_TOKEN_UNASKED = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105 - a message of librdkafka


Refusal = Literal["credentials", "broker certificate", "client certificate"]


_REMEDIES: dict[Refusal, tuple[str, str]] = {
    "credentials": (
        "a user and password, or a token, that the brokers know, and a mechanism that they take",
        "mend what RECOUNT_KAFKA_SECURITY names: a password that was changed is changed there too",
    ),
    "broker certificate": (
        "a certificate of the broker that is in force, names its host, and was signed by an authority of ssl.ca",
        "give the authority of the brokers as ssl.ca.location; where theirs has expired, they need a new one",
    ),
    "client certificate": (
        "a certificate that is in force and was signed by an authority of the brokers",
        "have the certificate of ssl.certificate renewed, or give one where the brokers ask for it",
    ),
}


_admitted: set[tuple[int, str, Security]] = set()


_busy = threading.Lock()


class NotAdmitted(Terminal):
    """The brokers refuse this client, or it refuses them; ``refusal`` says what is at fault."""

    def __init__(self, refusal: Refusal, security: Security, said: str) -> None:
        self.refusal = refusal
        expected, remedy = _REMEDIES[refusal]
        super().__init__(
            f"Kafka cannot be used: {refusal} refused", given=f"{security}: {said}", expected=expected, remedy=remedy
        )


def require_admission(process: int, servers: str, security: Security) -> None:
    """Return when a broker has let a client of ``security`` in, now or earlier in ``process``.

    Raises ``NotAdmitted``, or ``Transient`` when no broker has answered within ``PATIENCE_S``.
    """
    asked = (process, servers, security)
    with _busy:
        if asked not in _admitted:
            _ask(servers, security)
            _admitted.add(asked)


def forget_admissions() -> None:
    """Let the next client ask again: brokers do not answer, and may no longer let anybody in."""
    with _busy:
        _admitted.clear()


def _ask(servers: str, security: Security) -> None:
    told: list[KafkaError] = []
    own: dict[str, Any] = {"log_level": 0, "reconnect.backoff.ms": 200, "error_cb": told.append}
    admin = AdminClient({"bootstrap.servers": servers, **own, **security.of_clients()})
    answer = admin.describe_cluster(request_timeout=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not answer.done() and time.monotonic() < deadline:
        admin.poll(_POLL_S)
        for error in told:
            if refusal := _refusal(error):
                raise NotAdmitted(refusal, security, error.str())
    try:
        if answer.done():
            answer.result()
            return
        said = "no answer"
    except KafkaException as error:
        said = str(error.args[0])
    reasons = dict.fromkeys(error.str() for error in told[-2:])
    raise Transient(
        "Kafka does not answer",
        given=f"{security} at {servers}: {'; '.join((said, *reasons))}",
        expected=f"an answer within {PATIENCE_S:.0f} s",
        remedy="retry; see that the brokers are up, and that security.protocol is that of the port",
    )


def _refusal(error: KafkaError) -> Refusal | None:
    said = error.str()
    if error.code() == KafkaError._AUTHENTICATION:
        return None if _TOKEN_UNASKED in said else "credentials"
    if error.code() == KafkaError._SSL and "certificate" in said:
        return "broker certificate"
    if any(f"SSL alert number {number}" in said for number in _CERTIFICATE_ALERTS):
        return "client certificate"
    return None
