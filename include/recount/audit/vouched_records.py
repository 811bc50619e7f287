"""Records of what people did to a stream (erasures, orders to set aside): which of them count, and which are forged.

A record counts where its SHA-256 holds, it is of this stream and, where there are keys, one of them has signed it. What
a certificate that counts has listed needs no signature: it is the certificate's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from recount.audit.ledger_rules import LEDGER
from recount.audit.signing import PublicKeys
from recount.core.errors import Terminal
from recount.core.signed_record import SignedRecord
from recount.core.verdict import Difference

R = TypeVar("R", bound=SignedRecord)


def counted(
    texts: Sequence[str], stream: str, trusted: PublicKeys, listed: Iterable[str], read: Callable[[str], R]
) -> tuple[list[R], list[tuple[str, str]]]:
    """The records among ``texts`` that count, and by the name of the others what is wrong with them.

    ``listed`` are the SHA-256 of those that a certificate vouches for.
    """
    vouched, found, forged = set(listed), [], []
    for text in texts:
        try:
            one = read(text)
        except Terminal as fault:
            forged.append((hashlib.sha256(text.encode()).hexdigest()[:16], str(fault)))
            continue
        fault_found = _fault(one, stream, trusted, vouched)
        if fault_found is None:
            found.append(one)
        else:
            forged.append((one.name, fault_found))
    return found, forged


def differences_of(
    table: str, *, forged: Sequence[tuple[str, str]], missing: Sequence[str], says: Mapping[str, str]
) -> list[Difference]:
    """What is wrong with the records of ``table``: those that are ``forged``, and those that only a certificate has.

    Names are the evidence. ``says`` has what one reads of them: the records that are ``written``, what makes a
    ``forged`` one a violation, all that are ``listed`` and what is there if one is ``gone``.
    """
    extra = [(says["written"], fault, says["forged"], name) for name, fault in forged]
    removed = "somebody removed it from the table; it counts as the certificate has it"
    lost = [(says["listed"], says["gone"], removed, name) for name in missing]
    return [
        Difference(
            kind=LEDGER,
            place=f"table {table}",
            verdict=verdict,
            expected=expected,
            actual=actual,
            cause=cause,
            evidence=(name,),
        )
        for verdict, wrong in (("extra", extra), ("lost", lost))
        for expected, actual, cause, name in wrong
    ]


def _fault(one: SignedRecord, stream: str, trusted: PublicKeys, vouched: set[str]) -> str | None:
    if not one.holds:
        return f"the SHA-256 of {one.name} is not that of the record"
    if one.stream != stream:
        return f"{one.name} is of the stream {one.stream}"
    if not trusted.keys or one.sha256 in vouched:
        return None
    return trusted.fault_of(one.key_id, one.signature, one.signed)
