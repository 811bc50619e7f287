"""The same flow twice: ``calm`` is never disturbed, ``killed`` and ``shot`` are killed again and again."""

from __future__ import annotations

from tests.integration.spark.purchases import purchases_topic, revenue

chaos_purchases = purchases_topic("chaos-purchases")
calm = revenue("calm", chaos_purchases)
killed = revenue("killed", chaos_purchases)
shot = revenue("shot", chaos_purchases)
