"""The packages of the product are under licences that are allowed, and another one would be told by its name."""

from __future__ import annotations

import pytest
from tests.packages.allowed import FILE, LOCK, Allowed, locked
from tests.packages.licences import NONE, is_allowed, licence_faults, licence_of, licences

SOME = frozenset({"MIT", "Apache-2.0", "BSD-3-Clause"})


def test_each_package_of_the_lock_is_under_a_licence_that_is_allowed() -> None:
    packages = locked(LOCK.read_text())
    assert {"pyspark", "apache-airflow", "cffi"} <= set(packages)
    assert len(packages) > 190
    assert licence_faults(licences(packages), Allowed.read(FILE.read_text())) == []


@pytest.mark.parametrize(
    ("licence", "holds"),
    [
        ("MIT", True),
        ("GPL-3.0-only", False),
        ("MIT AND Apache-2.0", True),
        ("MIT AND GPL-3.0-only", False),
        ("GPL-3.0-only OR MIT", True),
        ("MIT OR GPL-3.0-only", True),
        ("GPL-3.0-only AND (MIT OR Apache-2.0)", False),
        ("MIT AND (GPL-3.0-only OR Apache-2.0)", True),
        ("(MIT", False),
        ("MIT License", False),
        (NONE, False),
        ("", False),
    ],
)
def test_an_expression_holds_where_the_allowed_licences_are_enough(licence: str, holds: bool) -> None:
    assert is_allowed(licence, SOME) is holds


@pytest.mark.parametrize(
    ("expression", "classifiers", "text", "licence"),
    [
        ("MIT OR Apache-2.0", ["License :: OSI Approved :: BSD License"], "GPL", "MIT OR Apache-2.0"),
        (None, ["Topic :: A", "License :: OSI Approved :: MIT License"], "GPL", "MIT"),
        (None, [f"License :: OSI Approved :: {one}" for one in ("MIT License", "GPL")], None, "MIT AND GPL"),
        (None, [], "3-Clause BSD License", "BSD-3-Clause"),
        (None, [], "The whole text\nof a licence", NONE),
        (None, [], None, NONE),
    ],
)
def test_a_licence_is_read_from_the_first_place_that_tells_one(
    expression: str | None, classifiers: list[str], text: str | None, licence: str
) -> None:
    assert licence_of(expression, classifiers, text) == licence


def allowed(**others: str) -> Allowed:
    return Allowed(licences=SOME, other_licences=others, vulnerabilities={})


def test_another_licence_is_told_with_the_package_and_what_to_do() -> None:
    [fault] = licence_faults({"good": "MIT", "other": "GPL-3.0-only"}, allowed())
    assert fault.startswith("other is under the licence GPL-3.0-only: take another package, or add it to")
    assert licence_faults({"good": "MIT", "other": "GPL-3.0-only"}, allowed(other="its choice")) == []


def test_an_exception_that_is_none_any_more_is_told() -> None:
    [fault] = licence_faults({"good": "MIT"}, allowed(good="once"))
    assert fault.startswith("good needs no exception any more")


@pytest.mark.parametrize(
    "more", ['[other_licences]\nother = ""\n[vulnerabilities]\n', "[other_licences]\n[vulnerabilities]\n[strange]\n"]
)
def test_an_exception_without_a_reason_and_an_unknown_table_are_refused(more: str) -> None:
    with pytest.raises(ValueError, match=r"allowed\.toml"):
        Allowed.read(f"licences = []\n{more}")


def test_packages_for_other_machines_are_left_out() -> None:
    lines = [
        "a==1 \\",
        "    --hash=sha256:0",
        "    # via b==2",
        "B_c==2 ; sys_platform == 'win32' \\",
        "D.e==3 ; sys_platform != 'win32'",
    ]
    assert locked("\n".join(lines)) == ["a", "d-e"]
