"""The security of Kafka's clients: read from files, checked at once, and never shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from recount.kafka import security as module
from recount.kafka.connection import Connection
from recount.kafka.security import UNSECURED, InvalidSecurity, security_from, security_of
from recount.profile.listeners import CertificateAuthority
from recount.runtime.errors import Terminal
from recount.runtime.installation import write_secret
from recount.runtime.settings import Settings

SECRET = 's3cr\\et "quoted" = ;\''  # noqa: S105 - of the test
SCRAM = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "stream",
    "sasl.password": SECRET,
}


@pytest.fixture
def authority(tmp_path: Path) -> CertificateAuthority:
    return CertificateAuthority(tmp_path / "authority")


def faults(keys: dict[str, str], folder: Path = Path()) -> list[str]:
    with pytest.raises(InvalidSecurity) as raised:
        security_from(keys, "the test", folder)
    assert SECRET not in str(raised.value)
    return raised.value.faults


def kept(folder: Path, keys: dict[str, str], name: str = "kafka.properties") -> Path:
    path = folder / name
    lines = "# of the test\n\n" + "".join(f"{key} = {value}\n" for key, value in keys.items())
    write_secret(path, json.dumps(keys) if path.suffix == ".json" else lines)
    return path


def mutual(folder: Path, authority: CertificateAuthority) -> Path:
    """A folder as Kubernetes mounts a certificate."""
    folder.mkdir()
    certificate, key = authority.issue("stream")
    for name, text in (("ca.crt", authority.certificate_file.read_text()), ("tls.crt", certificate), ("tls.key", key)):
        write_secret(folder / name, text)
    return folder


def test_nothing_named_is_no_security() -> None:
    assert security_of("") is UNSECURED
    assert dict(UNSECURED.of_clients()) == dict(UNSECURED.of_spark()) == {}


@pytest.mark.parametrize("name", ["kafka.properties", "kafka.json"])
def test_a_file_of_either_form_says_the_same_to_clients_and_to_spark(name: str, tmp_path: Path) -> None:
    found = security_of(str(kept(tmp_path, SCRAM, name)))
    assert dict(found.of_clients()) == SCRAM
    jaas = found.of_spark()["kafka.sasl.jaas.config"]
    assert jaas.startswith('org.apache.kafka.common.security.scram.ScramLoginModule required username="stream" ')
    assert jaas.endswith('password="s3cr\\\\et \\"quoted\\" = ;\'";')


def test_the_role_of_a_process_is_put_in_the_place(tmp_path: Path, settings: Settings) -> None:
    for role in ("audit", "admin"):
        kept(tmp_path, {**SCRAM, "sasl.username": f"of-{role}"}, f"{role}.properties")
    place = str(tmp_path / "{role}.properties")
    settings = replace(settings, kafka_security=place)
    assert Connection.of(settings.acting_as("audit")).security["sasl.username"] == "of-audit"
    assert Connection.of(settings).security["sasl.username"] == "of-admin"


def test_neither_text_nor_environment_nor_options_show_a_secret(tmp_path: Path, settings: Settings) -> None:
    place = str(kept(tmp_path, SCRAM))
    settings = replace(settings, kafka_security=place)
    connection = Connection.of(settings)
    shown = [connection, connection.security, connection.of_spark, connection.security.of_clients(), settings]
    assert SECRET in dict(connection.security.of_clients()).values()
    for one in shown:
        assert "s3cr" not in f"{one!r} {one}"
    assert "s3cr" not in json.dumps(settings.to_environment())


def test_all_faults_of_keys_are_reported_at_once() -> None:
    found = faults({"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM", "sasl.pasword": SECRET})
    assert found == [
        "sasl.pasword is unknown: give sasl.password",
        "sasl.mechanism is SCRAM, not one of SCRAM-SHA-256, SCRAM-SHA-512, PLAIN, OAUTHBEARER",
    ]
    [unknown, missing] = faults({"sasl.jaas.config": SECRET})
    assert "sasl.jaas.config is unknown" in unknown
    assert "security.protocol is missing" in missing
    assert faults({"security.protocol": "PLAINTEXT", "sasl.password": SECRET}) == [
        "sasl.password is of no use with PLAINTEXT"
    ]
    assert faults({"security.protocol": "SSL"}) == ["ssl.certificate and ssl.key are not both given"]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"sasl.password": ""}, "sasl.username and sasl.password must be set"), ({"ssl.ca.pem": SECRET}, "ssl.ca.pem")],
)
def test_librdkafka_says_what_is_wrong_with_values(wrong: dict[str, str], said: str) -> None:
    [fault] = faults({**SCRAM, **wrong})
    assert said in fault


def test_passwords_do_not_cross_the_network_in_clear() -> None:
    assert "SASL_PLAINTEXT, not one of" in faults({**SCRAM, "security.protocol": "SASL_PLAINTEXT"})[0]
    token = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "http://tokens.bank/token",
        "sasl.oauthbearer.client.id": "stream",
        "sasl.oauthbearer.client.secret": SECRET,
    }
    assert "https://" in faults(token)[0]
    found = security_from({**token, "sasl.oauthbearer.token.endpoint.url": "https://tokens.bank/token"}, "the test")
    assert found.of_clients()["sasl.oauthbearer.method"] == "oidc"
    assert "clientSecret=" in found.of_spark()["kafka.sasl.jaas.config"]


def test_a_folder_of_a_certificate_is_mutual_tls(tmp_path: Path, authority: CertificateAuthority) -> None:
    found = security_of(str(mutual(tmp_path / "mounted", authority)))
    assert str(found) == "SSL as certificate CN=stream"
    assert found.of_spark()["kafka.ssl.keystore.key"].startswith("-----BEGIN PRIVATE KEY-----")
    (tmp_path / "mounted/ca.crt").write_text("\n")
    with pytest.raises(InvalidSecurity, match=r"ca.crt is empty"):
        security_of(str(tmp_path / "mounted"))
    (tmp_path / "mounted/tls.crt").unlink()
    with pytest.raises(InvalidSecurity, match="not both given"):
        security_of(str(tmp_path / "mounted"))
    assert found.of_clients()["ssl.ca.pem"] == authority.certificate_file.read_text()


def test_an_encrypted_key_is_opened_by_its_password_and_by_no_other(
    tmp_path: Path, authority: CertificateAuthority
) -> None:
    certificate, key = authority.issue("stream")
    locked = load_pem_private_key(key.encode(), None).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(SECRET.encode())
    )
    keys = {"security.protocol": "SSL", "ssl.certificate.pem": certificate, "ssl.key.pem": locked.decode()}
    found = security_from({**keys, "ssl.key.password": SECRET}, "the test")
    assert found.of_clients()["ssl.key.pem"] == key
    assert "bad password" in faults(keys)[0]
    assert "maybe wrong password" in faults({**keys, "ssl.key.password": "other"})[0]
    other = authority.issue("stream")[1]
    assert "key values mismatch" in faults({**keys, "ssl.key.pem": other})[0]


def test_a_file_that_everybody_may_read_is_refused(tmp_path: Path) -> None:
    path = kept(tmp_path, SCRAM)
    path.chmod(0o644)
    with pytest.raises(InvalidSecurity, match="can be read by everybody"):
        security_of(str(path))
    path.chmod(0o640)
    assert security_of(str(path))["sasl.username"] == "stream"


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("kafka.json", f'{{"sasl.password": "{SECRET[:3]}', "not a JSON object of texts"),
        ("kafka.json", '{"sasl.password": 5}', "not a JSON object of texts"),
        ("kafka.properties", f"sasl.password {SECRET[:3]}\n", "line 1 is not name=value"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_shows_nothing_of_it(
    name: str, text: str, fault: str, tmp_path: Path
) -> None:
    write_secret(tmp_path / name, text)
    with pytest.raises(InvalidSecurity) as raised:
        security_of(str(tmp_path / name))
    assert fault in raised.value.faults[0]
    assert SECRET[:3] not in f"{raised.value}"
    assert raised.value.__cause__ is None


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidSecurity, match="No such file"):
        security_of(str(tmp_path / "nowhere.properties"))


def test_an_airflow_connection_is_for_the_processes_of_airflow_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_connections", [])
    with pytest.raises(Terminal, match="outside of Airflow"):
        security_of("airflow:kafka_stream")
    module.read_connections_by(lambda name: {**SCRAM, "sasl.username": name})
    assert security_of("airflow:kafka_stream")["sasl.username"] == "kafka_stream"
