"""Prints a ``.env`` for docker-compose.yml with keys nobody has seen: ``python docker/new_secrets.py > .env``."""

from __future__ import annotations

import secrets
from base64 import urlsafe_b64encode

print(f"POSTGRES_PASSWORD={secrets.token_hex(16)}")
print(f"AIRFLOW_ADMIN_PASSWORD={secrets.token_urlsafe(24)}")
print(f"AIRFLOW_FERNET_KEY={urlsafe_b64encode(secrets.token_bytes(32)).decode()}")
print(f"AIRFLOW_JWT_SECRET={secrets.token_urlsafe(48)}")
print(f"RECOUNT_TOKEN={secrets.token_urlsafe(32)}")
print(f"AIRFLOW_SESSION_KEY={secrets.token_urlsafe(48)}")
print(f"KAFKA_CLUSTER_ID={urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip('=')}")
