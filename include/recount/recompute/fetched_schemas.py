"""Schemas of the registry for the recompute, by plain HTTP: it proves the stream, so it does not ask by its client."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from recount.core.registry_errors import VARIABLE, RegistryRefused, RegistryUnreachable
from recount.recompute.rules.json_values import Bad

_MOST_S = 15
_IDS = range(2**31)
"""No registry has others: to some of them the path of such an id is none."""
_PASSES = frozenset({408, 429})


def fetched_schema(number: int) -> str:
    """The text of the Avro schema ``number``; raises ``Bad`` where the registry has no such."""
    return _avro(os.environ.get(VARIABLE, ""), number)


def fetched_file(number: int) -> str:
    """The Protobuf file ``number`` as it was registered; raises ``Bad`` where the registry has no such."""
    return _protobuf(os.environ.get(VARIABLE, ""), number)


@lru_cache(maxsize=4096)
def _avro(registry: str, number: int) -> str:
    found = _answered(registry, number)
    if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
        raise Bad("schema", f"schema {number} is no Avro that stands alone")
    return str(found["schema"])


@lru_cache(maxsize=4096)
def _protobuf(registry: str, number: int) -> str:
    found = _answered(registry, number)
    if found.get("schemaType") != "PROTOBUF":
        raise Bad("schema", f"schema {number} is no Protobuf")
    return str(found["schema"])


def _answered(registry: str, number: int) -> dict[str, Any]:
    """What the registry says of the schema ``number``."""
    if number not in _IDS:
        raise Bad("schema", f"no registry has a schema {number}")
    if not registry.startswith(("http://", "https://")):
        raise RegistryRefused(f"no {VARIABLE}")
    asked = f"{registry.rstrip('/')}/schemas/ids/{number}"
    try:
        with urlopen(Request(asked, headers={"Accept": "application/json"}), timeout=_MOST_S) as answer:  # noqa: S310 - checked above
            found = json.load(answer)
    except HTTPError as error:
        raise _of_status(error, number) from error
    except (OSError, HTTPException, ValueError) as error:
        raise RegistryUnreachable(f"{type(error).__name__} for schema {number}") from error
    if not isinstance(found, dict) or not isinstance(found.get("schema"), str):
        raise RegistryRefused(f"the answer for schema {number} has no schema")
    return found


def _of_status(error: HTTPError, number: int) -> Exception:
    try:
        said: Any = json.load(error)
        code = said.get("error_code") if isinstance(said, dict) else None
    except (OSError, ValueError):
        code = None
    if error.code == 404 and isinstance(code, int) and code // 100 == 404:
        return Bad("schema", f"no schema {number} in the registry")
    told = f"HTTP {error.code} for schema {number}"
    return RegistryUnreachable(told) if error.code >= 500 or error.code in _PASSES else RegistryRefused(told)
