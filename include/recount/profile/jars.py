"""``recount jars``: fetch what Spark and the broker need with Maven, or name it for spark-submit."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, cast, get_args

import typer

from recount.profile.home import Project
from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import JarSet, coordinates, shipped

_MARK = ".complete"
_TIMEOUT_S = 1_800
_LAST_WORDS = 2_000


def jars(
    sets: Annotated[
        list[str] | None, typer.Argument(help="spark: for drivers and executors; kafka: for the broker of recount up.")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where each set gets a folder; by default .cache/jars of the project.")
    ] = None,
    packages: Annotated[
        bool, typer.Option("--packages", help="Fetch nothing: print what spark-submit takes for --packages.")
    ] = False,
    class_archive: Annotated[
        bool,
        typer.Option(help="Make an archive of Spark's classes, 200 MB, with which JVMs of this machine start faster."),
    ] = True,
) -> None:
    """Fetch the jars that this version of Recount needs, with Maven. What is there already is not fetched again."""
    wanted = [_known(name) for name in sets or ["spark"]]
    if packages:
        print(",".join(one for name in wanted for one in coordinates(name)))
        return
    into = folder or Project.containing(Path.cwd()).jars
    for name in wanted:
        folder = fetched(name, into / name)
        if name == "spark" and class_archive:
            # what it imports takes long
            from recount.profile.class_archive import make_archive

            make_archive(folder)
        print(folder)


def fetched(name: JarSet, folder: Path) -> Path:
    """``folder``, with all jars of the set in it; as it was before where Maven fails.

    Raises ``Terminal`` where Maven is not installed, ``Transient`` where it fails.
    """
    pom = shipped("pom.xml")
    mark = hashlib.sha256(pom.read_bytes()).hexdigest()
    if (folder / _MARK).is_file() and (folder / _MARK).read_text() == mark:
        return folder
    maven = shutil.which("mvn")
    if maven is None:
        raise Terminal.of("maven-missing", given="no mvn on the PATH")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as place:
        # Maven writes beside the pom
        shutil.copy(pom, place)
        new = Path(place) / "jars"
        command = [maven, "--batch-mode", "--quiet", "--strict-checksums", f"--file={place}/pom.xml"]
        goal = ["dependency:copy-dependencies", f"-DoutputDirectory={new}"]
        ended = subprocess.run(
            [*command, "--activate-profiles", name, *goal],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if ended.returncode:
            raise Transient.of("maven-failed", given=(ended.stdout + ended.stderr).strip()[-_LAST_WORDS:], name=name)
        (new / _MARK).write_text(mark)
        shutil.rmtree(folder, ignore_errors=True)
        new.rename(folder)
    return folder


def _known(name: str) -> JarSet:
    for known in get_args(JarSet):
        if name == known:
            return cast("JarSet", known)
    raise Terminal.of("no-such-jars", given=name, known=", ".join(get_args(JarSet)))
