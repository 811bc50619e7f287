"""Fraud: transactions that are high, many, or from where the user has not been (S22)."""

from recount import (
    STRING,
    Archive,
    RecordSchema,
    Topic,
    Topology,
    col,
    count,
    decimal,
    list_of,
    stream,
    table,
    tumbling,
)

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
)

user_profiles_archive = Archive(topic=user_profiles)

_in_order = stream(transactions).in_order(grace="1 min").select_key(user_id=col("user_id"))

fraud_alerts = Topology(
    name="fraud-alerts",
    sinks=[
        _in_order.filter(col("amount") > 10_000)
        .select(reason="high amount")
        .merge(
            _in_order.windowed_by(tumbling("5 min", grace="1 min"))
            .aggregate(n=count())
            .emit_each_record()
            .filter(col("n") > 3)
            .select(reason="many transactions"),
            _in_order.join_table(table(user_profiles))
            .filter(~col("known_locations").contains(col("location")))
            .select(reason="unknown location"),
        )
        .to(Topic(name="fraud-alerts", key="user_id"))
    ],
)
