"""A Kubernetes of one machine for tests: the part of its API that Spark and Airflow use, and pods that are processes.

An object is kept as it was sent; who watches is told of every change. A pod's container is run by docker/entrypoint.sh
with the environment that the pod says, config maps as files, and every service at 127.0.0.1.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import threading
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import yaml

from recount.profile.daemon import LOOPBACK

ENTRYPOINT = Path(__file__).parents[1] / "docker" / "entrypoint.sh"
_PLACE = re.compile(
    r"/(?:api/v1|apis/networking\.k8s\.io/v1)/namespaces/(?P<namespace>[^/]+)/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?"
)
_OF_KIND = {
    "pods": "Pod",
    "services": "Service",
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "networkpolicies": "NetworkPolicy",
}
Object = dict[str, Any]


@dataclass
class FakeKubernetes:
    """Serves at ``url``; files of its pods go to ``folder``, processes have ``environment`` and what their pod says.

    While ``refusing`` is not 0 it is the answer to everything.
    """

    folder: Path
    environment: Mapping[str, str]
    objects: dict[tuple[str, str, str], Object] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    refusing: int = 0

    def __post_init__(self) -> None:
        self._changed = threading.RLock()
        self._version = 0
        self._watchers: list[tuple[str, str, Mapping[str, str], queue.Queue[Object | None]]] = []
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                fake._serve(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _any  # noqa: N815 - of the library

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer((LOOPBACK, 0), Handler)
        self._server.daemon_threads = True
        self.hosts.touch()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self._server.server_port}"

    @property
    def hosts(self) -> Path:
        """The addresses of services, as a JVM reads them (jdk.net.hosts.file)."""
        return self.folder / "hosts"

    @property
    def kubeconfig(self) -> str:
        """By which a client finds it."""
        config = {
            "clusters": [{"name": "here", "cluster": {"server": self.url}}],
            "users": [{"name": "airflow", "user": {}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "airflow"}}],
            "current-context": "here",
        }
        return yaml.safe_dump(config)

    def of(self, kind: str) -> list[Object]:
        """All objects of a kind (``pods``)."""
        with self._changed:
            return [one for (_, of, _), one in self.objects.items() if of == kind]

    def has(self, pod: str, namespace: str, phase: str, **state: Any) -> None:
        """Let there be a pod in ``phase`` that is no process; ``state`` is that of its container."""
        key = (namespace, "pods", pod)
        with self._changed:
            self.objects[key] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "namespace": namespace}}
            self._say(key, phase, "driver", state)

    def loses(self, pod: str, namespace: str) -> None:
        """Let a pod be gone."""
        with self._changed:
            self._delete((namespace, "pods", pod))

    def log(self, pod: str) -> str:
        """What its container has written."""
        return (self.folder / pod / "log").read_text(errors="replace")

    def __enter__(self) -> FakeKubernetes:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for *_, told in self._watchers:
            told.put(None)
        self._server.shutdown()
        self._server.server_close()
        for pod in list(self._processes):
            self._kill(pod)

    # ---- the API

    def _serve(self, asked: BaseHTTPRequestHandler) -> None:
        body = asked.rfile.read(int(asked.headers.get("Content-Length") or 0))
        address = urlsplit(asked.path)
        query = {name: values[0] for name, values in parse_qs(address.query).items()}
        self.asked.append(f"{asked.command} {asked.path}")
        if self.refusing:
            return _answer(asked, self.refusing, _status(self.refusing, "as told"))
        place = _PLACE.fullmatch(address.path)
        if place is None or place["kind"] not in _OF_KIND:
            return _answer(asked, 404, _status(404, f"no {address.path} here"))
        if asked.headers.get("Upgrade"):
            # a client that would rather watch by a web socket takes what follows then
            return _answer(asked, 503, _status(503, "no web sockets here"))
        key = (place["namespace"], place["kind"], place["name"] or "")
        if asked.command == "GET" and query.get("watch") in ("true", "1"):
            return self._watch(asked, key, query)
        sent = yaml.safe_load(body) if body else {}
        with self._changed:
            code, content = self._carried_out(asked.command, key, query, sent)
        return _answer(asked, code, content)

    def _carried_out(
        self, method: str, key: tuple[str, str, str], query: Mapping[str, str], sent: Object
    ) -> tuple[int, Object]:
        namespace, kind, name = key
        if not name and method == "GET":
            return 200, self._list(key, query)
        if not name and method == "DELETE":
            for one in self._selected(key, query):
                self._delete((namespace, kind, one["metadata"]["name"]))
            return 200, _status(200, "deleted")
        if method == "POST":
            name = sent["metadata"].get("name") or f"{sent['metadata']['generateName']}{uuid4().hex[:5]}"
            if (namespace, kind, name) in self.objects:
                return 409, _status(409, f"{name} is there")
            return 201, self._put((namespace, kind, name), sent)
        known = self.objects.get(key)
        if method in ("PUT", "PATCH"):
            # of a server-side apply, which makes what is not there, or a merge of metadata
            return (200 if known else 201), self._put(key, _merged(known or {}, sent))
        if known is None:
            return 404, _status(404, f"no {kind} {name}")
        if method == "DELETE":
            self._delete(key)
        return 200, known

    def _put(self, key: tuple[str, str, str], sent: Object) -> Object:
        namespace, kind, name = key
        is_new = key not in self.objects
        self._version += 1
        metadata = {
            "uid": str(uuid4()),
            "creationTimestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
            **sent["metadata"],
            "namespace": namespace,
            "name": name,
            "resourceVersion": str(self._version),
        }
        made = {"apiVersion": "v1", "kind": _OF_KIND[kind], **sent, "metadata": metadata}
        if kind == "pods" and is_new:
            made["status"] = {"phase": "Pending", "containerStatuses": []}
        self.objects[key] = made
        if kind == "services" and is_new:
            with self.hosts.open("a") as file:
                file.write(f"{LOOPBACK} {name}.{namespace}.svc\n")
        self._tell("ADDED" if is_new else "MODIFIED", key, made)
        if kind == "pods" and is_new:
            self._start(key, made)
        return made

    def _delete(self, key: tuple[str, str, str]) -> None:
        gone = self.objects.pop(key)
        self._tell("DELETED", key, gone)
        if key[1] == "pods":
            self._kill(key[2])

    def _list(self, key: tuple[str, str, str], query: Mapping[str, str]) -> Object:
        found = self._selected(key, query)
        return {
            "apiVersion": "v1",
            "kind": f"{_OF_KIND[key[1]]}List",
            "metadata": {"resourceVersion": str(self._version)},
            "items": found,
        }

    def _selected(self, key: tuple[str, str, str], query: Mapping[str, str]) -> list[Object]:
        namespace, kind, _ = key
        return [
            one
            for (of, what, _), one in self.objects.items()
            if (of, what) == (namespace, kind) and _is_selected(one, query)
        ]

    def _watch(self, asked: BaseHTTPRequestHandler, key: tuple[str, str, str], query: Mapping[str, str]) -> None:
        told: queue.Queue[Object | None] = queue.Queue()
        with self._changed:
            if "resourceVersion" not in query:
                for one in self._selected(key, query):
                    told.put({"type": "ADDED", "object": one})
            self._watchers.append((key[0], key[1], query, told))
        asked.send_response(200)
        asked.send_header("Content-Type", "application/json")
        asked.send_header("Connection", "close")
        asked.end_headers()
        asked.close_connection = True
        try:
            while (event := told.get()) is not None:
                asked.wfile.write(json.dumps(event).encode() + b"\n")
                asked.wfile.flush()
        except OSError:
            return

    def _tell(self, what: str, key: tuple[str, str, str], changed: Object) -> None:
        for namespace, kind, query, told in self._watchers:
            if (namespace, kind) == key[:2] and _is_selected(changed, query):
                told.put({"type": what, "object": json.loads(json.dumps(changed))})

    # ---- its pods

    def _start(self, key: tuple[str, str, str], pod: Object) -> None:
        threading.Thread(target=self._try, args=(key, pod), daemon=True).start()

    def _try(self, key: tuple[str, str, str], pod: Object) -> None:
        """A pod that cannot be run has failed, and its log says why."""
        (self.folder / key[2]).mkdir()
        try:
            self._run(key, pod)
        except Exception:
            (self.folder / key[2] / "log").write_text(traceback.format_exc())
            with self._changed:
                self._say(key, "Failed", "none", {"terminated": {"exitCode": 1, "reason": "CannotRun"}})

    def _run(self, key: tuple[str, str, str], pod: Object) -> None:
        namespace, _, name = key
        folder = self.folder / name
        [container] = pod["spec"]["containers"]
        files = self._mounted(namespace, pod, container, folder)
        said = {one["name"]: _value(one, pod) for one in container.get("env", ())}
        environment = {**self.environment, **{name: _here(value, files) for name, value in said.items()}}
        words = [_here(word, files) for word in container["args"]]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                ["sh", str(ENTRYPOINT), *words],  # noqa: S607
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        with self._changed:
            self._processes[name] = process
            self._say(key, "Running", container["name"], {"running": {"startedAt": _now()}})
        code = process.wait()
        with self._changed:
            state = {
                "terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error", "finishedAt": _now()}
            }
            self._say(key, "Succeeded" if code == 0 else "Failed", container["name"], state)

    def _mounted(self, namespace: str, pod: Object, container: Object, folder: Path) -> dict[str, str]:
        """Where config maps lie: by the place that the pod has them at, that of this machine."""
        places = {one["name"]: one["mountPath"] for one in container.get("volumeMounts", ())}
        found = {}
        for volume in pod["spec"].get("volumes", ()):
            if "configMap" in volume and volume["name"] in places:
                content = self._config_map(namespace, volume["configMap"]["name"])
                place = folder / volume["name"]
                place.mkdir()
                for file, text in content.items():
                    (place / file).write_text(text)
                found[places[volume["name"]]] = str(place)
        return found

    def _config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Its files; a pod waits until it is there."""
        for _ in range(100):
            with self._changed:
                found = self.objects.get((namespace, "configmaps", name))
            if found is not None:
                content: dict[str, str] = found.get("data", {})
                return content
            threading.Event().wait(0.1)
        raise AssertionError(f"no config map {name}")

    def _say(self, key: tuple[str, str, str], phase: str, container: str, state: Object) -> None:
        if (pod := self.objects.get(key)) is None:
            return
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        pod["status"] = {
            "phase": phase,
            "podIP": LOOPBACK,
            "conditions": [{"type": "Ready", "status": str(phase == "Running")}],
            "containerStatuses": [
                {
                    "name": container,
                    "image": "recount",
                    "imageID": "",
                    "ready": phase == "Running",
                    "restartCount": 0,
                    "state": state,
                }
            ],
        }
        self._tell("MODIFIED", key, pod)

    def _kill(self, pod: str) -> None:
        process = self._processes.get(pod)
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def _answer(asked: BaseHTTPRequestHandler, code: int, content: Object) -> None:
    body = json.dumps(content).encode()
    asked.send_response(code)
    asked.send_header("Content-Type", "application/json")
    asked.send_header("Content-Length", str(len(body)))
    asked.end_headers()
    asked.wfile.write(body)


def _status(code: int, message: str) -> Object:
    said = "Success" if code < 400 else "Failure"
    return {"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": said, "message": message, "code": code}


def _is_selected(one: Object, query: Mapping[str, str]) -> bool:
    labels = one["metadata"].get("labels", {})
    fields = {"metadata.name": one["metadata"]["name"]}
    for known, selector in ((labels, query.get("labelSelector", "")), (fields, query.get("fieldSelector", ""))):
        for part in filter(None, selector.split(",")):
            name, sign, wanted = re.split(r"(!=|==?)", part, maxsplit=1)
            if (known.get(name) == wanted) is (sign == "!="):
                return False
    return True


def _merged(known: Object, sent: Object) -> Object:
    merged = dict(known)
    for name, value in sent.items():
        old = merged.get(name)
        merged[name] = _merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return merged


def _value(said: Object, pod: Object) -> str:
    """The value of a variable of a container's environment."""
    if "value" in said:
        return str(said["value"])
    path = said.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
    return {"status.podIP": LOOPBACK, "metadata.name": pod["metadata"]["name"]}.get(path, "")


def _here(text: str, files: Mapping[str, str]) -> str:
    for place, here in files.items():
        text = text.replace(place, here)
    return text


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
