"""Options that several commands share, so that one thing has one name and one help text everywhere."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Annotated

import typer

Json = Annotated[bool, typer.Option("--json", help="Print one line of JSON to standard output; never prompt.")]
Config = Annotated[
    str | None, typer.Option("--config", "-c", metavar="FILE", help="Settings file (TOML).", show_default=False)
]
State = Annotated[
    str | None,
    typer.Option(
        "--state", metavar="DIR", help="State folder of the node (settings key `state_dir`).", show_default=False
    ),
]
Bundle = Annotated[str, typer.Argument(metavar="BUNDLE", help="Folder that holds the bundle's manifest.toml.")]
BundleOrArchive = Annotated[
    str, typer.Argument(metavar="BUNDLE", help="Folder that holds the bundle's manifest.toml, or its packed archive.")
]
Arena = Annotated[
    str | None,
    typer.Option(
        "--arena", metavar="ID|FILE", help="Arena document. Default: the settings' `qualify.arena`.", show_default=False
    ),
]
Target = Annotated[
    str | None,
    typer.Option("--target", metavar="T", help="Insist that the bundle competes for this.", show_default=False),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="BUNDLE",
        help="The incumbent: a bundle's folder or archive. Default: stock.",
        show_default=False,
    ),
]
Wallet = Annotated[
    str | None,
    typer.Option(
        "--wallet", "--wallet-name", metavar="NAME", help="Wallet name.", envvar="BT_WALLET", show_default=False
    ),
]
Hotkey = Annotated[
    str | None,
    typer.Option(
        "--hotkey",
        "--wallet-hotkey",
        metavar="NAME",
        help="Hotkey name.",
        envvar="BT_WALLET_HOTKEY",
        show_default=False,
    ),
]
WalletPath = Annotated[
    str | None,
    typer.Option(
        "--wallet-path", metavar="DIR", help="Folder of wallets.", envvar="BT_WALLET_PATH", show_default=False
    ),
]
Network = Annotated[
    str | None,
    typer.Option("--network", metavar="NAME", help="Profile: devnet, test or finney.", show_default=False),
]
Endpoint = Annotated[
    list[str] | None,
    typer.Option(
        "--endpoint", metavar="URL", help="Chain node (ws:// or wss://); may be repeated.", show_default=False
    ),
]
Netuid = Annotated[int | None, typer.Option("--netuid", metavar="N", help="Subnet number.", show_default=False)]


@dataclass(frozen=True)
class ChainChoice:
    """What the command line says about chain and wallet; None means: as the settings have it."""

    config: str | None = None
    network: str | None = None
    endpoints: tuple[str, ...] | None = None
    netuid: int | None = None
    wallet: str | None = None
    hotkey: str | None = None
    wallet_path: str | None = None

    def overrides(self) -> dict[str, object]:
        """Return the choice as settings keys of the flag layer."""
        pairs = {
            "profile": self.network,
            "chain.endpoints": self.endpoints,
            "chain.netuid": self.netuid,
            "chain.wallet": self.wallet,
            "chain.hotkey": self.hotkey,
            "chain.wallet_path": self.wallet_path,
        }
        return {key: value for key, value in pairs.items() if value is not None}

    def chain_flags(self) -> tuple[str, ...]:
        """Return the words that name the same chain to another command, quoted for a shell."""
        pairs = [("--config", self.config), ("--network", self.network), ("--netuid", self.netuid)]
        pairs += [("--endpoint", endpoint) for endpoint in self.endpoints or ()]
        return tuple(f"{flag} {shlex.quote(str(value))}" for flag, value in pairs if value is not None)
