"""A real schema registry, Apicurio with its in-memory store, from its Maven archive."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from recount.profile.daemon import free_ports
from recount.profile.home import Project

VERSION = "3.3.3"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_LEAST_JAVA = 21
_START_S = 120


@dataclass(frozen=True, kw_only=True)
class Registry:
    """A running registry."""

    address: str

    def register(self, subject: str, schema: Any, references: Mapping[str, str] = MappingProxyType({})) -> int:
        """Give ``schema`` to the registry, the text of a Protobuf file or an Avro schema; returns its id.

        ``references`` are names of files that it imports, with their subjects.
        """
        is_text = isinstance(schema, str)
        given: dict[str, Any] = {"schema": schema, "schemaType": "PROTOBUF"}
        if not is_text:
            given = {"schema": json.dumps(schema)}
        given["references"] = [{"name": name, "subject": of, "version": 1} for name, of in references.items()]
        body = json.dumps(given).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        with urlopen(Request(f"{self.address}/subjects/{subject}/versions", body, headers), timeout=30) as answer:  # noqa: S310 - of this test
            return int(json.load(answer)["id"])

    def subjects(self) -> list[str]:
        """All that have a schema."""
        with urlopen(f"{self.address}/subjects", timeout=30) as answer:  # noqa: S310 - of this test
            return list(json.load(answer))

    def require(self, rule: str) -> None:
        """The rule of compatibility of all subjects."""
        body, headers = json.dumps({"compatibility": rule}).encode(), {"Content-Type": "application/json"}
        with urlopen(Request(f"{self.address}/config", body, headers, method="PUT"), timeout=30):  # noqa: S310 - of this test
            pass


def java() -> Path | None:
    """The Java of a JDK that is new enough, beside the one in use; None where there is none."""
    found = shutil.which("java")
    homes = Path(found).resolve().parents[2].glob("*/bin/java") if found else ()
    for one in sorted({path.resolve() for path in homes}):
        said = subprocess.run([one, "-version"], capture_output=True, text=True, check=False).stderr
        number = said.partition('version "')[2].partition('"')[0].partition(".")[0]
        if number.isdigit() and int(number) >= _LEAST_JAVA:
            return one
    return None


def unpacked(project: Project) -> Path:
    """The folder of the registry, fetched once."""
    folder = project.root / ".cache" / "apicurio" / VERSION
    if not (folder / "quarkus-run.jar").exists():
        folder.mkdir(parents=True, exist_ok=True)
        artifact = f"-Dartifact=io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
        command = ["mvn", "--batch-mode", "--quiet", _COPY, artifact, f"-DoutputDirectory={folder}"]
        subprocess.run(command, check=True, cwd=folder, timeout=280)
        [archive] = folder.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        archive.unlink()
    return folder


@contextmanager
def running(project: Project, log: Path, java: Path, port: int | None = None) -> Iterator[Registry]:
    """A registry on the loopback address, empty, until the end of the block."""
    port = port or free_ports(1)[0]
    command = [
        *(str(java), "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
        *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}", "-jar", "quarkus-run.jar"),
    ]
    registry = Registry(address=f"http://127.0.0.1:{port}/apis/ccompat/v7")
    with log.open("ab") as said:
        process = subprocess.Popen(command, cwd=unpacked(project), stdout=said, stderr=subprocess.STDOUT)
    try:
        _await(registry, process, log)
        yield registry
    finally:
        process.kill()
        process.wait(30)


def _await(registry: Registry, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-3000:]
        try:
            with urlopen(f"{registry.address}/subjects", timeout=5):  # noqa: S310 - of this test
                return
        except (URLError, OSError):
            time.sleep(0.2)
