"""Fraud: the transactions and the profiles of users that the rules of S22 look at."""

from recount.core.archive import Archive
from recount.core.schema import STRING, RecordSchema, decimal, list_of
from recount.core.topics import UNLIMITED_RETENTION_MS, Topic

transactions = Topic(
    name="transactions",
    key="txn_id",
    value=RecordSchema.of(
        txn_id=STRING,
        user_id=STRING,
        amount=decimal(15, 2),
        location=STRING,
        required=("txn_id", "user_id", "amount"),
    ),
)

user_profiles = Topic(
    name="user-profiles",
    key="user_id",
    value=RecordSchema.of(user_id=STRING, known_locations=list_of(STRING), required=("user_id",)),
    cleanup_policy="compact",
    retention_ms=UNLIMITED_RETENTION_MS,
)

user_profiles_archive = Archive(topic=user_profiles)
