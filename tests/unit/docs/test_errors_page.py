"""docs/errors.md lists every error that the code raises, and every terminal one says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.errors.errors_page import page as errors_page
from tests.errors.raised import Raised, raised_in
from tests.unit.docs.shown_commands import ROOT, page

ERRORS = raised_in(ROOT / "include" / "recount")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with one module, ``audit/judge.py``, and the tree of errors."""
    for name in ("audit", "runtime"):
        (tmp_path / name).mkdir()
    (tmp_path / "runtime" / "errors.py").write_text((ROOT / "include/recount/runtime/errors.py").read_text())
    return tmp_path


def read(package: Path, source: str) -> list[Raised]:
    (package / "audit" / "judge.py").write_text(source)
    return [one for one in raised_in(package) if one.room == "audit"]


def told(found: Raised) -> tuple[str, str, str]:
    return found.branch, found.message, found.remedy


def test_the_page_is_made_of_the_code() -> None:
    assert page("errors.md") == errors_page(ERRORS), "run `make errors`"


def test_every_terminal_error_says_what_to_do() -> None:
    assert [error for error in ERRORS if error.branch == "Terminal" and not error.remedy] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('raise Terminal("lost", remedy="find it")', ("Terminal", "lost", "find it")),
        ('def f(n):\n    return Transient(f"lost {n.name}")', ("Transient", "lost …", "")),
        ('raise Terminal("a" if x else "b", remedy="c" + "d")', ("Terminal", "a / b", "cd")),
        ('_GO = "go"\ndef f():\n    raise Terminal("lost", remedy=_GO)', ("Terminal", "lost", "go")),
        ('def f(n):\n    go = f"go {n}"\n    raise Terminal("lost", remedy=go)', ("Terminal", "lost", "go …")),
        ('require(x, "size", given=x, expected="y", remedy="z")', ("Terminal", "invalid size", "z")),
        ('raise InvalidDeclaration("size", given=x, expected="y", remedy="z")', ("Terminal", "invalid size", "z")),
        ('class Lost(Terminal):\n    """."""\nraise Lost("x", remedy="y")', ("Terminal", "x", "y")),
        (
            'class Lost(Transient):\n    def __init__(self, n):\n        super().__init__("x", remedy="y")',
            ("Transient", "x", "y"),
        ),
    ],
)
def test_an_error_is_read_from_the_code_that_makes_it(
    package: Path, source: str, expected: tuple[str, str, str]
) -> None:
    assert [told(found) for found in read(package, source)] == [expected]


def test_an_error_in_a_package_without_a_title_is_refused() -> None:
    with pytest.raises(AssertionError, match="elsewhere"):
        errors_page([Raised(room="elsewhere", branch="Terminal", message="lost", expected="", remedy="find it")])
