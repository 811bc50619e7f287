"""The streams that the tests' Airflow knows: one that runs, and one on which orders and roles are tried."""

from topologies.orders import high_value_orders, orders, revenue_by_region

__all__ = ["high_value_orders", "orders", "revenue_by_region"]
