"""The same flow twice: ``calm`` is never disturbed, ``killed`` is killed again and again."""

from __future__ import annotations

from tests.integration.engine.purchases import deliveries_topic, journeys, purchases_topic, revenue

chaos_purchases = purchases_topic("chaos-purchases")
calm = revenue("calm", chaos_purchases)
killed = revenue("killed", chaos_purchases)

chaos_deliveries = deliveries_topic("chaos-deliveries")
calm_journeys = journeys("calm-journeys", chaos_purchases, chaos_deliveries)
killed_journeys = journeys("killed-journeys", chaos_purchases, chaos_deliveries)
"""The general way of the engine: two topics, two sinks, a join and sessions."""
