"""``python -m examples.shop play`` lets the shop live; ``python -m examples.shop demo`` shows two nights of it."""

from __future__ import annotations

from typing import Annotated

import typer
from examples.shop.play_command import play
from examples.shop.shop_demo import TOPOLOGIES, ShopDemo

from recount.profile import demo as orders_demo
from recount.runtime.console import errors_reported

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(play)


@app.command()
def demo(
    keep: Annotated[bool, typer.Option("--keep", help="leave everything running at the end")] = False,
    secure: Annotated[bool, typer.Option("--secure", help="on a Kafka with TLS, passwords and ACLs")] = False,
) -> None:
    """Run two nights of every stream of the shop, and say what held. Exit code 1 when something did not."""
    orders_demo.shown(
        lambda profile, say: ShopDemo(profile, say).run(), topologies=TOPOLOGIES, keep=keep, secure=secure
    )


if __name__ == "__main__":
    with errors_reported("shop"):
        app()
