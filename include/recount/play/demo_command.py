"""``recount demo``: of one stream in some minutes, or of the whole shop."""

from __future__ import annotations

from typing import Annotated

import typer

from recount.core.errors import Terminal
from recount.local import demo as orders_demo
from recount.local.demo import Injection

_RECORDS = 1_000_000


def demo(
    every: Annotated[bool, typer.Option("--all", help="two nights of every stream of the shop")] = False,
    inject: Annotated[Injection | None, typer.Option(help="tamper with the output before the audit")] = None,
    records: Annotated[int | None, typer.Option(min=100_000, help=f"how many orders, {_RECORDS:,} unless told")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="leave everything running at the end")] = False,
    secure: Annotated[bool, typer.Option("--secure", help="on a Kafka with TLS, passwords and ACLs")] = False,
) -> None:
    """Run the whole chain on a generated flow, and say what held. Exit code 1 when something did not."""
    if not every:
        orders_demo.demo(inject, records or _RECORDS, keep=keep, secure=secure)
        return
    refused = [name for name, given in (("--inject", inject), ("--records", records)) if given is not None]
    if refused:
        raise Terminal(
            "the demo of the whole shop has numbers and a lie of its own",
            given=f"--all with {' and '.join(refused)}",
            expected="--all alone, or with --keep and --secure",
            remedy="leave out --all for the demo of one stream",
        )
    from recount.play.shop_demo import TOPOLOGIES, ShopDemo

    orders_demo.shown(
        lambda profile, say: ShopDemo(profile, say).run(), topologies=TOPOLOGIES, keep=keep, secure=secure
    )
