"""Which streams of the shop share a driver: three, so that all of them run on one small machine.

Streams of one group have topics in common, and stand still together while their driver is replaced.
"""

from recount import StreamGroup
from topologies import clicks, customers, fraud, orders, page_views, payments, windows

orders_group = StreamGroup(
    name="orders",
    streams=[
        orders.orders_archive,
        orders.revenue_by_region,
        orders.high_value_orders,
        orders.enriched_orders,
        orders.product_revenue,
        orders.order_counts,
        orders.region_counts,
        orders.processed_orders,
        orders.orders_deduplicated,
    ],
    trigger_interval="120 s",
    max_offsets=150_000,
)

customers_group = StreamGroup(
    name="customers",
    streams=[
        customers.customers_archive,
        customers.users_archive,
        customers.enriched_orders_by_customer,
        customers.customer_stats,
        customers.high_spend_alerts,
        customers.order_summary,
        customers.customer_accounts,
        payments.matched_orders,
        payments.unpaid_orders,
        payments.orders_and_payments,
        payments.method_totals,
        payments.order_balances,
        fraud.user_profiles_archive,
        fraud.fraud_alerts,
    ],
    trigger_interval="120 s",
    max_offsets=150_000,
)

views_group = StreamGroup(
    name="page-views",
    streams=[
        clicks.click_sessions,
        clicks.section_visits,
        page_views.page_view_counts,
        page_views.enriched_events,
        page_views.page_paths,
        page_views.page_popularity,
        page_views.departed_users,
        windows.views_tumbling_1_min,
        windows.views_tumbling_5_min,
        windows.views_hopping_10_min,
        windows.views_hopping_60_s,
        windows.views_sliding_30_s,
        windows.views_sliding_5_min,
        windows.views_session_10_min,
        windows.views_of_all_time,
        windows.views_last_100,
    ],
    trigger_interval="120 s",
    max_offsets=150_000,
)
