"""How Airflow runs a stream, its audits and its backfills: what does not change the meaning of the stream.

Declared at the top level of a module of topologies, beside the streams that it is about, or handed to ``recount_dags``.

>>> from recount.declare.groups import Archive
>>> from recount.declare.topics import Topic
>>> clicks = Archive(topic=Topic(name="clicks", key="id"))
>>> RunSettings(streams=[clicks], driver=Resources(executors=2), notifiers="alerts:pager").names
('archive-clicks',)
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from recount.declare.groups import Archive, StreamGroup
from recount.declare.limits import Resources
from recount.declare.topology import Topology
from recount.runtime.errors import require, require_each

Approval = Literal["human", "automatic"]
_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_TEXTS = ("run_options", "approvers")
DRIVER_OPTIONS: Mapping[str, int] = MappingProxyType(
    {
        "--max-offsets": 1,
        "--target-batch-ms": 0,
        "--trigger-interval-ms": 0,
        "--transaction-timeout-ms": 1_000,
        "--memory-limit-mib": 0,
        "--delta-log-kept-ms": 60_000,
        "--metrics-port": 1,
    }
)
"""What the command line of a driver takes beside what it is to run, each with a number of at least so much."""
_CRON_LIMITS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_CRON_PART = re.compile(r"(?:\*|(\d{1,2})(?:-(\d{1,2}))?)(?:/([1-9]\d?))?")


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """Settings of each of ``streams``: declarations, or their names.

    ``driver`` is what the driver of the stream takes, ``audit`` what each of its audits and backfills takes, and
    ``run_options`` go to the driver's command line (``recount stream --help``). Its audit begins when
    ``audit_schedule`` says (cron, UTC; by default at a time of the night that its name decides; ``"never"``: by hand
    only) and takes a slot of ``audit_pool`` (by default ``RECOUNT_AUDIT_POOL``). ``approve`` is whose approval a
    backfill needs, ``approvers`` are the ids of the only users who may give it and may accept findings. ``notifiers``
    are called instead of ``RECOUNT_NOTIFIERS``: ``module:name``.

    A group of ``streams`` stands for its driver, its night, and those of its streams that have no settings of their
    own. A stream in a group has no driver and no schedule of its own.
    """

    streams: Sequence[Topology | Archive | StreamGroup | str]
    driver: Resources = field(default_factory=Resources)
    audit: Resources = field(default_factory=Resources)
    run_options: Sequence[str] = ()
    audit_schedule: str | None = None
    audit_pool: str | None = None
    approve: Approval = "human"
    approvers: Sequence[str] = ()
    notifiers: str | None = None

    def __post_init__(self) -> None:
        require(
            isinstance(self.streams, list | tuple) and len(self.streams) > 0,
            "run-settings-of-no-stream",
            given=self.streams,
        )
        require_each("run-settings-of-something-else", self.streams, Topology | Archive | StreamGroup | str)
        of = f"run settings of {', '.join(self.names)}"
        for name in ("driver", "audit"):
            require(
                isinstance(getattr(self, name), Resources),
                "not-resources",
                given=getattr(self, name),
                name=name,
                settings=of,
            )
        for name in _TEXTS:
            given = getattr(self, name)
            require(
                isinstance(given, list | tuple) and all(isinstance(one, str) and one for one in given),
                "not-a-list-of-texts",
                given=given,
                name=name,
                settings=of,
            )
        wrong, known = _no_options(self.run_options), [f"{name} {least}" for name, least in DRIVER_OPTIONS.items()]
        require(not wrong, "run-options-unknown", given=" ".join(wrong), settings=of, known=", ".join(known))
        require(
            self.audit_schedule in (None, "never") or is_cron(self.audit_schedule),
            "audit-schedule-no-cron",
            given=self.audit_schedule,
            settings=of,
        )
        require(
            self.audit_pool is None or (isinstance(self.audit_pool, str) and bool(self.audit_pool.strip())),
            "audit-pool-no-name",
            given=self.audit_pool,
            settings=of,
        )
        require(self.approve in get_args(Approval), "approve-unknown", given=self.approve, settings=of)
        require(
            self.notifiers is None or (isinstance(self.notifiers, str) and bool(_PLACE.fullmatch(self.notifiers))),
            "notifiers-no-place",
            given=self.notifiers,
            settings=of,
        )

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(one if isinstance(one, str) else one.name for one in self.streams)

    @property
    def is_of_driver(self) -> bool:
        """Whether it says something that a driver or a schedule has once for all streams of a group."""
        return self.driver != Resources() or bool(self.run_options) or self.audit_schedule is not None


def _no_options(words: Sequence[str]) -> list[str]:
    """Return the ``words`` that are no option of a driver with a number that it takes: then it would not start."""
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    pairs = [tuple(parts[start : start + 2]) for start in range(0, len(parts), 2)]
    return [" ".join(pair) for pair in pairs if not _is_option(*pair)]


def _is_option(name: str, value: str = "") -> bool:
    return name in DRIVER_OPTIONS and value.isascii() and value.isdigit() and int(value) >= DRIVER_OPTIONS[name]


def by_name(
    settings: Iterable[RunSettings], streams: Iterable[str], groups: Mapping[str, StreamGroup]
) -> dict[str, RunSettings]:
    """Whose settings each are; ``InvalidDeclaration`` for a name that is unknown or has two.

    Refused too: a driver or a schedule for a stream that shares those of its group.
    """
    known = {*streams, *groups}
    group_of = {name: group.name for group in groups.values() for name in group.members}
    found: dict[str, RunSettings] = {}
    for one in settings:
        for name in one.names:
            require(name in known, "run-settings-of-an-unknown-stream", given=name, known=sorted(known))
            require(name not in found, "run-settings-given-twice", given=f"{name} more than once")
            require(
                name not in group_of or not one.is_of_driver,
                "run-settings-of-a-group-member",
                given="driver, run_options or audit_schedule",
                name=name,
                group=group_of.get(name),
            )
            found[name] = one
    return found


def is_cron(text: object) -> bool:
    """Minute, hour, day of the month, month, day of the week: ``*``, ``5``, ``1-5``, ``*/15``, or several with commas.

    >>> is_cron("30 2 * * 1-5"), is_cron("60 2 * * *"), is_cron("2 o'clock")
    (True, False, False)
    """
    if not isinstance(text, str) or len(fields := text.split(" ")) != len(_CRON_LIMITS):
        return False
    return all(
        _is_within(part, least, most)
        for field, (least, most) in zip(fields, _CRON_LIMITS, strict=True)
        for part in field.split(",")
    )


def _is_within(part: str, least: int, most: int) -> bool:
    found = _CRON_PART.fullmatch(part)
    if found is None:
        return False
    bounds = [int(number) for number in found.group(1, 2) if number is not None]
    return all(least <= number <= most for number in bounds) and bounds == sorted(bounds)
