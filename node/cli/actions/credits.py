"""`cacheon node credits`: credits of the evaluation cost, in the node's store."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from config.errors import ConfigurationError
from node.cli.output import Output, table
from node.cli.resolve import resolve_state
from node.store import credit_rows
from node.store.credit_rows import Credit
from node.store.visit import visit

if TYPE_CHECKING:
    from rich.console import Console


def grant(hotkey: str, count: int, note: str, *, config: str | None, state: str | None, as_json: bool) -> None:
    """Give `hotkey` credits and show them.

    Raises `ConfigurationError` (HOTKEY_ADDRESS_INVALID), `NotFoundError` (STATE_NOT_FOUND), `HostError`.
    """
    from chain.coldkey import is_address

    if not is_address(hotkey):
        raise ConfigurationError(
            "HOTKEY_ADDRESS_INVALID", f"{hotkey!r} is not the address of a hotkey",
            hint="give the SS58 address that the miner's submissions show in `cacheon node status`",
        )
    settings = resolve_state(config, state)
    _show(visit(settings.state_dir, credit_rows.grant, hotkey, count, note), "node credits grant", as_json=as_json)


def ls(hotkey: str, *, unspent: bool, config: str | None, state: str | None, as_json: bool) -> None:
    """Show the credits of `hotkey`, or of everybody. Raises what `grant` raises, but for the address."""
    settings = resolve_state(config, state)
    found = visit(settings.state_dir, credit_rows.list_credits, hotkey, unspent_only=unspent)
    _show(found, "node credits ls", as_json=as_json)


def _show(found: list[Credit], command: str, *, as_json: bool) -> None:
    output = Output(command, as_json=as_json)
    output.result(found, lambda console: _print(console, found))
    if not found:
        output.note("no credits")


def _print(console: Console, found: list[Credit]) -> None:
    columns = ("id", "hotkey", "because", "note", "granted", "spent on")
    rows = [
        (
            str(credit.id), credit.hotkey, credit.origin, credit.note,
            datetime.fromtimestamp(credit.granted_ms // 1000, UTC).strftime("%Y-%m-%d %H:%M"),
            (credit.spent_by or "-")[:16],
        )
        for credit in found
    ]
    if rows:
        console.print(table(columns, rows, whole=("hotkey",)))
