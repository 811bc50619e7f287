"""The manifests are objects that Kubernetes takes, fit together, and bound what each container takes."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from recount.runtime.settings import Settings

FOLDER = Path(__file__).parents[2] / "kubernetes"
VERSIONS = ("1.31", kubernetes_validate.latest_version())
"""The oldest that somebody may still run, and the newest whose schemas there are."""
TEMPLATES = ("driver-pod.yaml", "executor-pod.yaml")
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())


def objects() -> list[dict[str, Any]]:
    """Those that are applied."""
    return [one for name in KUSTOMIZATION["resources"] for one in yaml.safe_load_all((FOLDER / name).read_text())]


def templates() -> list[dict[str, Any]]:
    return [yaml.safe_load((FOLDER / name).read_text()) for name in TEMPLATES]


def names(kind: str) -> set[str]:
    return {one["metadata"]["name"] for one in objects() if one["kind"] == kind}


def spark_defaults() -> dict[str, str]:
    lines = (FOLDER / "spark-defaults.conf").read_text().splitlines()
    return dict(line.split(maxsplit=1) for line in lines if line and not line.startswith("#"))


def pods(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for one in found:
        if one["kind"] == "Pod":
            yield one["spec"]
        elif "template" in one.get("spec", {}):
            yield one["spec"]["template"]["spec"]


def faults(found: list[dict[str, Any]]) -> list[str]:
    """What names something that is not there, or takes what nobody has bounded."""
    secrets, claims = {"recount-kafka", "recount-serve"}, names("PersistentVolumeClaim")
    settings = {one["name"] for one in KUSTOMIZATION["configMapGenerator"]}
    told = []
    for pod in pods(found):
        volumes = {one["name"]: one for one in pod.get("volumes", ())}
        for name, one in volumes.items():
            claim, secret = one.get("persistentVolumeClaim"), one.get("secret")
            told += [f"no claim {claim['claimName']}"] if claim and claim["claimName"] not in claims else []
            told += [f"no secret {secret['secretName']}"] if secret and secret["secretName"] not in secrets else []
            told += [f"readable by all: {name}"] if secret and secret.get("defaultMode", 288) != 288 else []
        for container in pod["containers"]:
            resources, is_template = container.get("resources", {}), container["name"] in ("driver", "executor")
            told += [
                f"{container['name']} has no {kind} of {what}"
                for kind in ("requests", "limits")
                for what in ("cpu", "memory")
                if not is_template and what not in resources.get(kind, {})
            ]
            mounts = [one["name"] for one in container.get("volumeMounts", ())]
            told += [f"no volume {name}" for name in mounts if name not in volumes]
            references = [one["configMapRef"]["name"] for one in container.get("envFrom", ())]
            told += [f"no settings {name}" for name in references if name not in settings]
            is_bound = container["securityContext"].get("allowPrivilegeEscalation") is False
            told += (
                [] if is_bound and pod["securityContext"].get("runAsNonRoot") else [f"{container['name']} may be root"]
            )
    accounts, roles = names("ServiceAccount"), names("Role")
    for one in found:
        if one["kind"] == "RoleBinding":
            told += [f"no account {who['name']}" for who in one["subjects"] if who["name"] not in accounts]
            told += [] if one["roleRef"]["name"] in roles else [f"no role {one['roleRef']['name']}"]
    return told


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_takes_each_object(version: str) -> None:
    for one in (*objects(), *templates()):
        kubernetes_validate.validate(one, version, strict=True)


def test_all_files_of_the_folder_are_applied_fit_together_and_bound_every_container() -> None:
    assert faults([*objects(), *templates()]) == []
    generated = {
        file.rpartition("=")[2]
        for one in KUSTOMIZATION["configMapGenerator"]
        for file in (*one.get("envs", ()), *one.get("files", ()))
    }
    assert {file.name for file in FOLDER.iterdir()} == {"kustomization.yaml", *KUSTOMIZATION["resources"], *generated}


def test_the_settings_are_complete() -> None:
    lines = (FOLDER / "settings.env").read_text().splitlines()
    settings = Settings.from_environment(dict(line.split("=", 1) for line in lines))
    assert settings.profile == "production"
    mounts = [
        mount["mountPath"]
        for pod in templates()
        for one in pod["spec"]["containers"]
        for mount in one.get("volumeMounts", ())
    ]
    assert str(Path(settings.kafka_security).parent) in mounts


def test_drivers_and_executors_are_bounded_and_find_what_they_need() -> None:
    conf = spark_defaults()
    for who in ("driver", "executor"):
        assert {f"spark.kubernetes.{who}.{kind}.cores" for kind in ("request", "limit")} <= conf.keys()
        assert f"spark.{who}.memoryOverhead" in conf
        volume = f"spark.kubernetes.{who}.volumes.persistentVolumeClaim.recount"
        assert conf[f"{volume}.options.claimName"] in names("PersistentVolumeClaim")
        assert conf[f"{volume}.mount.path"] == "/srv/recount"
        assert Path(conf[f"spark.kubernetes.{who}.podTemplateFile"]).name in TEMPLATES
    assert conf["spark.kubernetes.authenticate.driver.serviceAccountName"] in names("ServiceAccount")
    [image] = KUSTOMIZATION["images"]
    assert conf["spark.kubernetes.container.image"] == f"{image['newName']}:{image['newTag']}"
    assert conf["spark.authenticate"] == conf["spark.network.crypto.enabled"] == "true"


def test_whoever_makes_pods_may_make_what_spark_makes_beside_them() -> None:
    for role in (one for one in objects() if one["kind"] == "Role"):
        made = {kind for rule in role["rules"] if "create" in rule["verbs"] for kind in rule["resources"]}
        assert made >= {"pods", "services", "configmaps", "networkpolicies"}


@pytest.mark.parametrize(("what", "program"), [("driver", "spark-submit"), ("executor", "java")])
def test_a_process_of_spark_works_where_it_may_write(tmp_path: Path, what: str, program: str) -> None:
    (tmp_path / program).write_text("#!/bin/sh\npwd\n")
    (tmp_path / program).chmod(0o755)
    entrypoint = FOLDER.with_name("docker") / "entrypoint.sh"
    given = dict.fromkeys(re.findall(r"\$\{?(SPARK_\w+)", entrypoint.read_text()), "x")
    environment = {**given, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    said = subprocess.check_output(["/bin/sh", entrypoint, what], cwd="/", env=environment, text=True, timeout=60)
    assert said.strip() != "/"
