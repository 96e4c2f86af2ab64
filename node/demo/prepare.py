"""What must exist before the demo's chain starts: archives, wallets, the genesis, the node's settings.

Every function here may be called again and finds its own earlier work.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec

import node
from chain.devnet.genesis_document import Genesis, NeuronSpec, OwnerSpec
from chain.wallet import WalletFiles, create_wallet
from config.errors import HostError
from intake.content_hash import hash_tree
from intake.package import package_bundle
from node.demo.archive_host import ArchiveHost
from node.demo.cast import CAST, DECOY, OWNER_WALLET, VALIDATOR_WALLET, Hosting
from node.demo.place import Place, write_atomically
from node.demo.settings_file import HOTKEY, NETUID

TEMPO_BLOCKS = 24
VALIDATOR_STAKE_TAO = 10_000
PURSE_TAO = 100


@dataclass(frozen=True)
class Company:
    """Everybody's wallets by name, and every example's content hash by folder name."""

    wallets: dict[str, WalletFiles]
    content_hashes: dict[str, str]

    @property
    def hotkeys(self) -> dict[str, str]:
        """Hotkey addresses by wallet name."""
        return {name: files.hotkey_address for name, files in self.wallets.items()}

    def archive_host(self, place: Place) -> ArchiveHost:
        """Return the host that treats each archive as the cast says."""
        broken = [player.example for player in CAST if player.hosting is Hosting.BROKEN]
        decoy = self.content_hashes[DECOY]
        return ArchiveHost(place.archives, {self.content_hashes[example]: decoy for example in broken})


def example_folder(name: str) -> Path:
    """Return the folder of an example bundle. Raises `HostError` (EXAMPLES_MISSING)."""
    folder = Path(node.__file__).parent.parent / "examples" / name
    if not (folder / "manifest.toml").is_file():
        raise HostError(
            "EXAMPLES_MISSING",
            f"the example bundles that the demo submits are not here: there is no {folder}",
            hint="run it from a checkout of the project: `make demo`",
        )
    return folder


def require_examples() -> None:
    """Look for every example before anything is started. Raises `HostError` (EXAMPLES_MISSING)."""
    for player in CAST:
        example_folder(player.example)


def gather(place: Place) -> Company:
    """Pack the archives, create the wallets and write the genesis of a chain that does not exist yet."""
    hashes = {player.example: _pack(place, player.example) for player in CAST}
    names = [OWNER_WALLET, VALIDATOR_WALLET, *(player.wallet for player in CAST)]
    wallets = _wallets(place, names)
    if not place.genesis.exists():
        write_atomically(place.genesis, msgspec.json.encode(genesis(wallets)))
    return Company(wallets, hashes)


def _wallets(place: Place, names: list[str]) -> dict[str, WalletFiles]:
    """Create all wallets beside their place and move them there at once: a killed run leaves no half-written key."""
    folder = place.wallets
    if not folder.exists():
        folder = place.root / "wallets.new"
        shutil.rmtree(folder, ignore_errors=True)
    wallets = {name: create_wallet(str(folder), name, HOTKEY, seed=f"//cacheon-demo//{name}") for name in names}
    if folder != place.wallets:
        folder.rename(place.wallets)
    return wallets


def _pack(place: Place, example: str) -> str:
    folder = example_folder(example)
    return package_bundle(folder, place.archives / f"{hash_tree(folder).hex}.tar.gz").content_hash


def genesis(wallets: dict[str, WalletFiles]) -> Genesis:
    """Return block 0: one subnet with an owner, a validator with permit and stake, and the miners."""
    validator, owner = wallets[VALIDATOR_WALLET], wallets[OWNER_WALLET]
    return Genesis(
        netuid=NETUID,
        tempo=TEMPO_BLOCKS,
        commit_reveal=True,
        reveal_period=1,
        name="demo",
        owner=OwnerSpec(owner.hotkey_address, owner.coldkey_address),
        neurons=(
            NeuronSpec(owner.hotkey_address, owner.coldkey_address),
            NeuronSpec(validator.hotkey_address, validator.coldkey_address, permit=True, stake=VALIDATOR_STAKE_TAO),
            *(
                NeuronSpec(wallets[player.wallet].hotkey_address, wallets[player.wallet].coldkey_address)
                for player in CAST
            ),
        ),
        balances={
            address: PURSE_TAO
            for files in wallets.values()
            for address in (files.hotkey_address, files.coldkey_address)
        },
    )
