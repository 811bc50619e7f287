"""Under which licence each package is, held against those that are allowed."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, metadata

from license_expression import ExpressionError, LicenseExpression, Licensing
from tests.packages.allowed import FILE, Allowed

NONE = "none that it tells"
_SPDX = Licensing()
_CLASSIFIER = "License :: "
_LONGEST = 60
"""A longer text is a licence, and no name of one."""
_IN_SPDX = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}
"""Names of classifiers, and of the field that has no rule. ``BSD License`` is one of several, all of them alike."""


def licences(packages: list[str]) -> dict[str, str]:
    """By package its licence. Raises ``SystemExit`` where one is not installed: what is not there cannot be read."""
    found = {}
    for name in packages:
        try:
            told = metadata(name)
        except PackageNotFoundError:
            raise SystemExit(f"{name} of main.lock is not installed: make setup") from None
        found[name] = licence_of(told.get("License-Expression"), told.get_all("Classifier") or [], told.get("License"))
    return found


def licence_of(expression: str | None, classifiers: list[str], text: str | None) -> str:
    """An expression of SPDX where the metadata has one, or else what the classifiers say together, or the free text."""
    of_classifiers = [one.rpartition(" :: ")[2] for one in classifiers if one.startswith(_CLASSIFIER)]
    of_text = text.strip() if text and len(text.strip()) <= _LONGEST and "\n" not in text.strip() else ""
    if expression:
        return expression
    if of_classifiers:
        return " AND ".join(_IN_SPDX.get(one, one) for one in of_classifiers)
    return _IN_SPDX.get(of_text, of_text) or NONE


def licence_faults(found: Mapping[str, str], allowed: Allowed) -> list[str]:
    """What is wrong with the licences of packages, and with exceptions that are none any more."""
    strange = {name for name, licence in found.items() if not is_allowed(licence, allowed.licences)}
    return [
        *(
            f"{name} is under the licence {found[name]}: take another package, or add it to [other_licences] of "
            f"requirements/{FILE.name} with the reason why it may be used"
            for name in sorted(strange - allowed.other_licences.keys())
        ),
        *(
            f"{name} needs no exception any more: remove it from [other_licences] of requirements/{FILE.name}"
            for name in sorted(allowed.other_licences.keys() - strange)
        ),
    ]


def is_allowed(licence: str, allowed: frozenset[str]) -> bool:
    """Whether an expression of SPDX holds with the allowed licences. A text that is no such expression does not."""
    try:
        return _holds(_SPDX.parse(licence), allowed)
    except ExpressionError:
        return False


def _holds(expression: LicenseExpression | None, allowed: frozenset[str]) -> bool:
    if isinstance(expression, _SPDX.OR):
        return any(_holds(one, allowed) for one in expression.args)
    if isinstance(expression, _SPDX.AND):
        return all(_holds(one, allowed) for one in expression.args)
    return str(expression) in allowed
