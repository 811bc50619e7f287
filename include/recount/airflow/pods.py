"""A driver that is a pod of Kubernetes; how it is, and its end, are asked by the client of Airflow's provider."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

from recount.core.errors import Terminal, Transient
from recount.extras import require_extra

_WITHIN = {"_request_timeout": 10}
_ASKED_EVERY_S = 20.0
"""Dozens of streams are looked at every few seconds: that a pod is there is believed for so long."""
_LONGEST_NAME = 63
_GONE, _REFUSED = (404,), (401, 403)
_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class DriverPod:
    """A pod, launched at ``started`` (seconds since the epoch). No other ever has its name."""

    pod: str
    namespace: str
    started: float

    @classmethod
    def named(cls, application: str, namespace: str) -> Self:
        """A name for a pod that is not there yet."""
        tail = f"-{uuid4().hex[:8]}-driver"
        words = re.sub(r"[^a-z0-9]+", "-", application.lower()).strip("-")
        return cls(pod=words[: _LONGEST_NAME - len(tail)].rstrip("-") + tail, namespace=namespace, started=time.time())

    @property
    def name(self) -> str:
        """For a log."""
        return f"pod {self.pod} in {self.namespace}"

    @property
    def conf(self) -> dict[str, str]:
        """Spark's settings by which a driver is this pod, in the namespace that the connection says."""
        return {"spark.kubernetes.driver.pod.name": self.pod}

    @property
    def is_alive(self) -> bool:
        """Whether it was there, and had not ended, some seconds ago; ``Transient`` where Kubernetes does not say."""
        if time.monotonic() - _ALIVE_AT_S.get(self.pod, float("-inf")) > _ASKED_EVERY_S:
            if self.has_ended():
                _ALIVE_AT_S.pop(self.pod, None)
                return False
            _ALIVE_AT_S[self.pod] = time.monotonic()
        return True

    def has_ended(self) -> bool:
        """Whether it has ended or is gone, as Kubernetes has it now; ``Transient`` where that does not say."""
        found = self._read()
        return found is None or found.status.phase in _OVER

    def end(self, patience_s: float = 10.0) -> None:
        """Delete the pod, which has ``patience_s`` to end by itself; one that is gone is left alone."""
        _ALIVE_AT_S.pop(self.pod, None)
        grace_s = int(patience_s)
        _asked(
            lambda pods: pods.delete_namespaced_pod(self.pod, self.namespace, grace_period_seconds=grace_s, **_WITHIN)
        )

    def failure(self) -> str | None:
        """Why a pod that has ended did not succeed; None where it did."""
        found = self._read()
        if found is None:
            return f"{self.name} is gone"
        if found.status.phase == "Succeeded":
            return None
        ended = [one.state.terminated for one in found.status.container_statuses or () if one.state.terminated]
        told = ", ".join(f"exit code {one.exit_code}, {one.reason}" for one in ended)
        why = told or found.status.reason or "nothing more is known"
        return f"{self.name} has failed: {why}; see: kubectl logs --namespace {self.namespace} {self.pod}"

    def exit_code(self) -> int | None:
        """That of its container, where it has ended by itself."""
        found = self._read()
        statuses = [] if found is None else found.status.container_statuses or ()
        return next((one.state.terminated.exit_code for one in statuses if one.state.terminated), None)

    def write(self, record: Path) -> None:
        """Let everybody find it again who reads ``record``."""
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(asdict(self)))

    @classmethod
    def find(cls, record: Path) -> Self | None:
        """The pod that ``record`` names, there or not; None where it names none."""
        try:
            content = json.loads(record.read_text())
        except (FileNotFoundError, ValueError):
            return None
        return cls(**content) if "pod" in content else None

    def _read(self) -> Any:
        """The pod as Kubernetes has it; None where there is none."""
        return _asked(lambda pods: pods.read_namespaced_pod(self.pod, self.namespace, **_WITHIN))


_ALIVE_AT_S: dict[str, float] = {}
"""When this process last saw each pod alive, of those that it looks at."""


def _asked(ask: Callable[[Any], Any]) -> Any:
    """What the cluster of this Airflow answers; None where there is no such thing."""
    require_extra("kubernetes")
    from airflow.providers.cncf.kubernetes.kube_client import get_kube_client
    from kubernetes.client import ApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        return ask(get_kube_client())
    except ApiException as error:
        if error.status in _GONE:
            return None
        told = f"{error.status} {error.reason}"
        if error.status in _REFUSED:
            raise Terminal(
                "Kubernetes does not allow this",
                given=told,
                expected="a service account of Airflow that may read, make and delete pods",
                remedy="give it the role recount-launcher, see docs/kubernetes.md",
            ) from error
        raise _silent(told) from error
    except ConfigException as error:
        raise Terminal(
            "Airflow does not know its Kubernetes",
            given=str(error),
            expected="a process in a pod with a service account, or a kubeconfig",
            remedy="set AIRFLOW__KUBERNETES_EXECUTOR__IN_CLUSTER and AIRFLOW__KUBERNETES_EXECUTOR__CONFIG_FILE",
        ) from error
    except HTTPError as error:
        raise _silent(str(error)) from error


def _silent(told: str) -> Transient:
    return Transient(
        "Kubernetes does not answer",
        given=told,
        expected="its API",
        remedy="none, where it is back soon: Airflow tries again",
    )
