"""Every kind of window (S15), each over the page views of a user."""

from recount import (
    ClosingWindows,
    Topic,
    Topology,
    col,
    count,
    hopping,
    last,
    last_n,
    session,
    sliding,
    stream,
    tumbling,
)
from topologies.page_views import page_views

_views = stream(page_views).select_key(user_id=col("user_id"))


def _counted(name: str, windows: ClosingWindows) -> Topology:
    counts = _views.windowed_by(windows).aggregate(views=count()).emit_final()
    return Topology(name=name, sinks=[counts.to(Topic(name=name, key="user_id"))])


views_tumbling_1_min = _counted("views-tumbling-1-min", tumbling("1 min", grace="0 s"))
views_tumbling_5_min = _counted("views-tumbling-5-min", tumbling("5 min", grace="0 s"))
views_hopping_10_min = _counted("views-hopping-10-min", hopping("10 min", advance="5 min", grace="0 s"))
views_hopping_60_s = _counted("views-hopping-60-s", hopping("60 s", advance="10 s", grace="10 s"))
views_sliding_30_s = _counted("views-sliding-30-s", sliding("30 s", grace="10 s"))
views_sliding_5_min = _counted("views-sliding-5-min", sliding("5 min", grace="0 s"))
views_session_10_min = _counted("views-session-10-min", session("10 min", grace="0 s"))

views_of_all_time = Topology(
    name="views-of-all-time",
    sinks=[
        _views.aggregate(views=count()).to(Topic(name="views-of-all-time", key="user_id", cleanup_policy="compact"))
    ],
)

views_last_100 = Topology(
    name="views-last-100",
    sinks=[
        _views.windowed_by(last_n(100))
        .aggregate(views=count(), page=last("page"))
        .emit_each_record()
        .to(Topic(name="views-last-100", key="user_id", cleanup_policy="compact"))
    ],
)
