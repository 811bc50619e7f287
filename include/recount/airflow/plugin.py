"""Additions of Recount to Airflow's web interface: its pages, an entry in the navigation, links on tasks."""

from typing import Any

from airflow.configuration import conf
from airflow.plugins_manager import AirflowPlugin

from recount.airflow.links import PAGES, CertificateLink, DataDocsLink, StreamLink
from recount.airflow.sqlite_writes import OneWriteAtATime


async def pages(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The pages, imported at the first request: every Airflow process loads plugins, only the api-server serves."""
    from recount.airflow.pages import app

    await app(scope, receive, send)


class RecountPlugin(AirflowPlugin):
    name = "recount"
    fastapi_apps = [{"app": pages, "url_prefix": PAGES, "name": "recount"}]
    fastapi_root_middlewares = (
        [{"middleware": OneWriteAtATime, "name": "recount: one write at a time"}]
        if conf.get_mandatory_value("database", "sql_alchemy_conn").startswith("sqlite")
        else []
    )
    external_views = [
        {"name": "Recount", "href": f"{PAGES}/", "url_route": "recount", "destination": "nav", "category": "browse"}
    ]
    operator_extra_links = [StreamLink(), CertificateLink(), DataDocsLink()]
