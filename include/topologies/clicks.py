"""Clicks: sessions (S1), and together with page views the visits of each section of the site (S25)."""

import logging

from recount import STRING, RecordSchema, Row, Topic, Topology, col, count, session, stream, tumbling
from topologies.page_views import page_views

_LOG = logging.getLogger(__name__)

click_events = Topic(
    name="click-events",
    key="click_id",
    value=RecordSchema.of(user_id=STRING, page=STRING, required=("user_id", "page")),
)

_clicks_by_user = stream(click_events).select_key(user_id=col("user_id"))

click_sessions = Topology(
    name="click-sessions",
    sinks=[
        _clicks_by_user.windowed_by(session("30 min", grace="0 s", max_duration="24 h"))
        .aggregate(clicks=count())
        .emit_final()
        .to(Topic(name="session-click-aggregations", key="user_id"))
    ],
)


def _note_visit(visit: Row) -> None:
    _LOG.debug("visit of %s by %s", visit["page"], visit["user_id"])


def _note_other_page(visit: Row) -> None:
    _LOG.debug("page of no section: %s", visit["page"])


def _clean_page(visit: Row) -> Row:
    """Without the query and in small letters: ``/Shop/Shoes?size=42`` is ``/shop/shoes``."""
    return {"page": visit["page"].partition("?")[0].lower()}


def _sections(visit: Row) -> list[Row]:
    """Every section that a page lies in: ``/shop/shoes`` lies in ``/shop`` and in ``/shop/shoes``."""
    names = visit["page"].strip("/").split("/")
    return [{"section": "/" + "/".join(names[: depth + 1])} for depth in range(len(names))]


_visits = (
    _clicks_by_user.merge(stream(page_views).select_key(user_id=col("user_id")))
    .peek(_note_visit)
    .map(_clean_page, page=STRING)
    .filter(col("page") != "")
    .through(Topic(name="visits", key="user_id"))
    .branch(checkout=col("page") == "/checkout", section=col("page") != "/")
)

section_visits = Topology(
    name="section-visits",
    sinks=[
        _visits["checkout"].to(Topic(name="checkout-visits", key="user_id")),
        _visits["section"]
        .flat_map(_sections, section=STRING)
        .select_key(section=col("section"))
        .repartition(2)
        .windowed_by(tumbling("5 min", grace="1 min"))
        .aggregate(visits=count())
        .emit_final()
        .to(Topic(name="section-visits", key="section")),
    ],
    actions=[_visits["rest"].foreach(_note_other_page)],
)
