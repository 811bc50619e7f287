"""The environment, read once at an entry point: one frozen object, every fault reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal, Self, cast, get_args
from urllib.parse import urlsplit

from recount.runtime.errors import InvalidDeclaration, Terminal, require
from recount.runtime.times import Duration, milliseconds

FOR_EVER = "for ever"
Profile = Literal["embedded", "production"]
LogFormat = Literal["text", "json"]
Role = Literal["stream", "audit", "admin"]
"""What a process is allowed on Kafka: to run streams, to judge them, or to prepare and order all."""
PREFIX = "RECOUNT_"
_PREFIX_OF_IDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
TOKEN_VARIABLE = "RECOUNT_TOKEN"  # noqa: S105 - a name
"""Has the token of `recount serve`. It is no setting: settings are handed on to every process, and written down."""
_JSON_OF_SPARK = "classpath:org/apache/spark/log4j2-json-layout.properties"
ROLE = "{role}"
_NO_SETTINGS = frozenset({"RECOUNT_HOME", TOKEN_VARIABLE})
_PORT = re.compile(r"\s*([a-zA-Z0-9._-]+)\s*=\s*([0-9]{1,5})\s*")


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """How long after it was last written; None: for ever.

    ``verdicts``: what audits keep of each row that they judged, unless a later one builds on it. ``validations``: the
    runs of Great Expectations with their pages. ``logs``: of tasks, drivers and daemons. Certificates are kept for
    ever: each proves that those before it are whole.
    """

    verdicts: Duration | None = "90 d"
    validations: Duration | None = "30 d"
    logs: Duration | None = "30 d"

    def __post_init__(self) -> None:
        for field in fields(self):
            limit_ms = self.milliseconds(field.name)
            require(
                limit_ms is None or limit_ms > 0,
                "keeping-no-time",
                given=getattr(self, field.name),
                name=field.name,
                for_ever=FOR_EVER,
                default=field.default,
            )

    def milliseconds(self, name: str) -> int | None:
        """How long the files called ``name`` are kept."""
        duration: Duration | None = getattr(self, name)
        return None if duration is None else milliseconds(duration, name)

    @classmethod
    def of(cls, text: str) -> Self:
        """From ``validations=90 d, logs=for ever``; what is not named has its default.

        >>> Keeping.of("logs=7 d").milliseconds("logs")
        604800000

        Raises ``InvalidDeclaration`` for another name or no duration.
        """
        given = dict(one.partition("=")[::2] for one in text.split(",") if one.strip())
        named = {name.strip(): duration.strip() for name, duration in given.items()}
        known = {field.name for field in fields(cls)}
        if named.keys() - known:
            raise InvalidDeclaration.of(
                "keeping-unknown", given=", ".join(sorted(named.keys() - known)), known=", ".join(sorted(known))
            )
        return cls(**{name: None if duration == FOR_EVER else duration for name, duration in named.items()})


class InvalidSettings(Terminal):
    """All missing, unknown and invalid keys of the environment, together."""

    def __init__(self, faults: list[str]) -> None:
        self.faults = faults
        super().__init__(
            "invalid settings",
            given="; ".join(faults),
            expected="the keys of recount.runtime.settings.Settings",
            remedy="call it once `recount up` has printed its addresses, or set them as docker-compose.yml does",
        )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Where everything is. Each field is read from ``RECOUNT_`` + its name in capitals.

    ``data``, ``checkpoints`` are folders or URIs that Spark can write; ``reports`` and ``logs`` are local folders.
    ``jars`` is the folder of Spark's jars, or ``packages``: Spark fetches them itself.
    ``prefix`` begins every group, transactional.id and platform topic of this installation on its Kafka cluster.
    ``notifiers`` is the place of the Airflow notifiers that are notified of problems, ``module:name``.
    ``audit_pool`` is the Airflow pool in which audits run; the user who sets it creates the pool.
    ``audit_memory`` is how much memory the recompute of an audit takes before it spills to disk.
    ``expectations`` is the folder of a project's own suites; empty: only those that come with Recount.
    ``keys`` is the folder of the key that signs certificates; without it they are issued unsigned.
    ``keeping`` says how long files are kept, see ``Keeping``.
    ``metrics`` says at which ports drivers serve their metrics, see ``metric_ports``; empty: at none.
    ``log_format`` is how processes write their logs: lines of text, or of JSON.
    ``kafka_security`` says where keys and passwords for Kafka are kept, see ``kafka.security``; it holds none.
    ``{role}`` in it stands for the role of the process.
    ``spark_security`` is the file by which drivers and a standalone Spark cluster know each other, see
    ``tables.spark_session``; empty: the cluster takes everybody.
    ``schema_registry`` is the address below which the schemas of Avro and Protobuf values are; it holds no secret, for
    it is shown.
    """

    profile: Profile
    bootstrap_servers: str
    data: str
    checkpoints: str
    reports: str
    logs: str
    run: str
    jars: str
    topologies: str = "topologies"
    notifiers: str = ""
    prefix: str = "recount"
    expectations: str = ""
    keys: str = ""
    audit_pool: str = "default_pool"
    audit_memory: str = "1GiB"
    keeping: str = ""
    log_format: LogFormat = "text"
    metrics: str = ""
    kafka_security: str = ""
    spark_security: str = ""
    schema_registry: str = ""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Settings:
        """Read and check ``environ``; raises ``InvalidSettings`` naming every fault."""
        known = {PREFIX + field.name.upper(): field for field in fields(cls)}
        given = {key: value for key, value in environ.items() if key.startswith(PREFIX)}
        faults = [f"{key} is unknown" for key in sorted(given.keys() - known.keys() - _NO_SETTINGS)]
        faults += [
            f"{key} is missing" for key, field in known.items() if not given.get(key) and field.default is MISSING
        ]
        profile = given.get("RECOUNT_PROFILE", "embedded")
        if profile not in ("embedded", "production"):
            faults.append(f"RECOUNT_PROFILE is {profile!r}, not embedded or production")
        log_format = given.get("RECOUNT_LOG_FORMAT") or "text"
        if log_format not in get_args(LogFormat):
            faults.append(f"RECOUNT_LOG_FORMAT is {log_format!r}, not text or json")
        prefix = given.get("RECOUNT_PREFIX") or "recount"
        if not _PREFIX_OF_IDS.fullmatch(prefix):
            faults.append(f"RECOUNT_PREFIX is {prefix!r}, not 1 to 64 letters, digits, '_' or '-'")
        lists = {"RECOUNT_KEEPING": Keeping.of, "RECOUNT_METRICS": metric_ports}
        for key, read in lists.items():
            try:
                read(given.get(key, ""))
            except InvalidDeclaration as fault:
                faults.append(f"{key}: {fault}")
        if not _is_address(given.get("RECOUNT_SCHEMA_REGISTRY", "")):
            faults.append("RECOUNT_SCHEMA_REGISTRY is no http:// or https:// address without a name and a password")
        if faults:
            raise InvalidSettings(faults)
        values = {field.name: given[key] for key, field in known.items() if given.get(key)}
        return cls(**cast("dict[str, Any]", values))

    def java_options(self, *others: str) -> str:
        """Options of a JVM of Spark: ``others``, and those by which it logs as ``log_format`` says.

        Spark's own setting for that does not hold for a JVM that Python starts.
        """
        of_log = f"-Dlog4j2.configurationFile={_JSON_OF_SPARK}" if self.log_format == "json" else ""
        return " ".join(filter(None, (*others, of_log)))

    def acting_as(self, role: Role) -> Settings:
        """The settings of a process of ``role``; one that names no role is an admin's."""
        return replace(self, kafka_security=self.kafka_security.replace(ROLE, role))

    def to_environment(self) -> dict[str, str]:
        """The environment from which ``from_environment`` reads this object back."""
        return {PREFIX + field.name.upper(): str(getattr(self, field.name)) for field in fields(self)}


def _is_address(text: str) -> bool:
    """Whether ``text`` is empty or an address that can be shown."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    is_plain = parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or parts.fragment)
    return not text or (is_plain and "@" not in parts.netloc)


def metric_ports(text: str) -> Mapping[str, int]:
    """Ports in ``text``, by the name of a group, or of a stream that has a driver of its own.

    >>> metric_ports("orders=9401, archive-clicks=9402")
    {'orders': 9401, 'archive-clicks': 9402}

    Raises ``InvalidDeclaration`` for what is no such list, and for a name or a port that is there twice.
    """
    found: dict[str, int] = {}
    for part in filter(str.strip, text.split(",")):
        match = _PORT.fullmatch(part)
        port = int(match[2]) if match else 0
        require(
            match is not None and 0 < port < 65_536 and match[1] not in found and port not in found.values(),
            "metrics-ports-unfit",
            given=part.strip(),
        )
        assert match is not None
        found[match[1]] = port
    return found
