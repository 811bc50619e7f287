"""Records of what people did to a stream (erasures, orders to set aside): which of them count, and which are forged.

A record counts where its SHA-256 holds, it is of this stream and, where there are keys, one of them has signed it. What
a certificate that counts has listed needs no signature: it is the certificate's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from recount.audit.signing import PublicKeys
from recount.core.errors import Terminal


class Vouched(Protocol):
    """A record that carries its SHA-256 and, where there is a key, a signature."""

    @property
    def stream(self) -> str:
        """Whose it is."""

    @property
    def sha256(self) -> str:
        """The hash that it says it has."""

    @property
    def key_id(self) -> str | None:
        """The key that is said to have signed it."""

    @property
    def signature(self) -> str | None:
        """The signature."""

    @property
    def holds(self) -> bool:
        """Whether the SHA-256 is that of the record."""


R = TypeVar("R", bound=Vouched)


def counted(
    texts: Sequence[str],
    stream: str,
    trusted: PublicKeys,
    listed: Iterable[str],
    *,
    read: Callable[[str], R],
    name: Callable[[R], str],
    signed: Callable[[R], bytes],
) -> tuple[list[R], list[tuple[str, str]]]:
    """The records among ``texts`` that count, and by the ``name`` of the others what is wrong with them.

    ``listed`` are the SHA-256 of those that a certificate vouches for.
    """
    vouched, found, forged = set(listed), [], []
    for text in texts:
        try:
            one = read(text)
        except Terminal as fault:
            forged.append((hashlib.sha256(text.encode()).hexdigest()[:16], str(fault)))
            continue
        fault_found = _fault(one, name(one), stream, trusted, vouched, signed)
        if fault_found is None:
            found.append(one)
        else:
            forged.append((name(one), fault_found))
    return found, forged


def _fault(
    one: R, name: str, stream: str, trusted: PublicKeys, vouched: set[str], signed: Callable[[R], bytes]
) -> str | None:
    if not one.holds:
        return f"the SHA-256 of {name} is not that of the record"
    if one.stream != stream:
        return f"{name} is of the stream {one.stream}"
    if not trusted.keys or one.sha256 in vouched:
        return None
    return trusted.fault_of(one.key_id, one.signature, signed(one))
