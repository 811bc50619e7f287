"""The public REST API of an Airflow of the embedded profile, for whoever started it and for later commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx

USERNAME = "admin"
"""The one user of an embedded Airflow."""
_PATIENCE_S = 60


class AirflowApi:
    """Calls to the Airflow at ``url``, whose user's password is in ``passwords``."""

    def __init__(self, url: str, passwords: Path) -> None:
        self.url = url
        self._passwords = passwords
        self._token = ""

    @cached_property
    def _client(self) -> httpx.Client:
        """Made at the first call: it loads certificates, and most commands make no call."""
        return httpx.Client(base_url=self.url, timeout=_PATIENCE_S)

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Call the API (``request("GET", "/api/v2/dags")``) and return the decoded answer.

        Raises ``httpx.HTTPStatusError`` for an answer that is an error.
        """
        if not self._token:
            login = {"username": USERNAME, "password": json.loads(self._passwords.read_text())[USERNAME]}
            answer = self._client.post("/auth/token", json=login)
            answer.raise_for_status()
            self._token = answer.json()["access_token"]
        headers = {"Authorization": f"Bearer {self._token}"}
        answer = self._client.request(method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json() if answer.content else None
