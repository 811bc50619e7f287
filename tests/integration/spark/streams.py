"""Topics that are read by several streams, and a stream that is launched, doubled, stopped and bereft."""

from __future__ import annotations

from tests.integration.spark.purchases import purchases_topic, revenue

from recount.core.archive import Archive

cut_purchases = purchases_topic("cut-purchases")
cut_archive = Archive(topic=cut_purchases)
small = revenue("small", cut_purchases)
medium = revenue("medium", cut_purchases)
large = revenue("large", cut_purchases)

live_purchases = purchases_topic("live-purchases")
live = revenue("live", live_purchases)

backlog_purchases = purchases_topic("backlog-purchases")
paced = revenue("paced", backlog_purchases)
unpaced = revenue("unpaced", backlog_purchases)
