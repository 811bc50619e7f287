"""A stream that is launched, doubled, stopped and bereft, and a group."""

from __future__ import annotations

from dataclasses import replace

from tests.integration.engine.purchases import purchases_topic, revenue

from recount.declare.groups import StreamGroup

live_purchases = purchases_topic("live-purchases")
live = revenue("live", live_purchases)

backlog_purchases = purchases_topic("backlog-purchases")
paced = revenue("paced", backlog_purchases)
unpaced = revenue("unpaced", backlog_purchases)

group_purchases = purchases_topic("group-purchases")
steady = revenue("steady", group_purchases)
fickle = revenue("fickle", group_purchases)
strict = replace(revenue("strict", group_purchases), on_bad_record="fail")
shared_driver = StreamGroup(name="shared-driver", streams=[steady, fickle, strict])
