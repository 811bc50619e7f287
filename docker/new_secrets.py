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
# Spark's settings, by which its master, its workers and its drivers know each other: docs/security.md
spark = {
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.cipher": "AES/GCM/NoPadding",
    "spark.network.crypto.saslFallback": "false",
    "spark.io.encryption.enabled": "true",
    "spark.master.rest.enabled": "false",
    "spark.authenticate.secret": secrets.token_urlsafe(32),
}
# one line: compose makes a line's end of each \n
print('SPARK_SECURITY="' + "".join(f"{name}={value}\\n" for name, value in spark.items()) + '"')
print(f"KAFKA_CLUSTER_ID={urlsafe_b64encode(secrets.token_bytes(16)).decode().rstrip('=')}")
