"""What `chain-submit --pay` does besides submitting: decide whether to pay, pay once, remember it.

Invariants
1. Nothing is signed before everything that can be known is in order: the bundle, its target, the registration, the size
   of the payload with a pointer in it, the balance.
2. A password is asked for on a terminal only, and never with `--json`.
3. Whatever fails after the payment, its pointer is told.
"""

from __future__ import annotations

import getpass
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from chain.payload import Payload, sealable_payload
from config.errors import Blame, CacheonError, ChainError, ConfigurationError, NetworkError, WalletError
from config.settings import Settings
from node.cli.miner import Prepared
from node.cli.options import ChainChoice
from node.cli.output import Output, tao_text
from node.cli.resolve import miner_state, variable

if TYPE_CHECKING:
    from chain.blocks import BlockRef
    from chain.client import ChainClient
    from chain.paying import SignedPayment
    from chain.signer import Signer

SLACK_BLOCKS = 64  # how late a commitment may be opened; what is due then is paid for now
_LARGEST = 2**32 - 1


@dataclass(frozen=True)
class Wish:
    """What the command line says about paying. `block` and `index` point at a payment that was made before."""

    pay: bool = False
    block: int | None = None
    index: int | None = None
    state: str | None = None
    password_env: str | None = None
    password_file: str | None = None

    def check(self) -> None:
        """Raise `ConfigurationError` (USAGE) for options that contradict each other."""
        if self.pay and (self.block is not None or self.index is not None):
            raise ConfigurationError("USAGE", "--pay makes a payment, --payment-block names one: give one of them")
        if (self.block is None) != (self.index is None):
            raise ConfigurationError("USAGE", "--payment-block and --payment-index go together")


class Paid(msgspec.Struct, frozen=True):
    """The payment of a submission as `--json` shows it."""

    block: int
    index: int
    amount_rao: int
    payer: str
    destination: str
    extrinsic_hash: str


class Plan(msgspec.Struct, frozen=True):
    """What `--pay` would do, as `--json` shows it. `amount_rao` is 0 when nothing is due."""

    amount_rao: int
    destination: str
    payer: str
    spendable_rao: int
    block: int
    quoted_until: int


def with_pointer(prepared: Prepared, block: int, index: int, *, allow_loopback_http: bool) -> Prepared:
    """Return `prepared` with a payload that points at a payment. Raises `ConfigurationError` (PAYLOAD_*)."""
    payload = Payload(prepared.content_hash, prepared.url, block, index)
    return replace(prepared, payload=sealable_payload(payload, allow_loopback_http=allow_loopback_http))


def require_payable(settings: Settings, prepared: Prepared, folder: Path) -> None:
    """Raise what keeps a bundle from being worth a payment, before any chain is asked.

    `ConfigurationError`: PAYLOAD_INVALID, PAYLOAD_UNSEALABLE, PAYMENT_TARGET_NOT_SERVED.
    """
    from config.target_catalog import load_catalog
    from intake.scan import screen_directory
    from node.doctor.configuration import require_arena

    with_pointer(prepared, _LARGEST, _LARGEST, allow_loopback_http=settings.is_devnet)
    arena = require_arena(settings, load_catalog())
    target = screen_directory(folder).report.target_id
    if arena.workload(target) is None:
        measured = ", ".join(sorted(workload.target for workload in arena.workloads))
        raise ConfigurationError(
            "PAYMENT_TARGET_NOT_SERVED", f"The arena {arena.id} does not measure {target}; it measures: {measured}.",
            hint="name the validators' arena as `qualify.arena` in the settings (-c FILE)",
        )


async def is_due(client: ChainClient, settings: Settings, reveal_in_blocks: int) -> bool:
    """Whether a submission committed now may have to be paid for: it can be opened on time or somewhat late."""
    cost = settings.evaluation_cost
    if cost.is_off:
        return False
    first = (await client.finalized_head()).number + reveal_in_blocks
    return any(cost.is_due(block) for block in range(first, first + SLACK_BLOCKS + 1))


def _require_price(settings: Settings, block: int) -> None:
    cost = settings.evaluation_cost
    if cost.price_at(block) == 0:
        start = cost.next_change(block)
        raise ChainError(
            "PAYMENT_NOT_STARTED",
            f"At block {block} nothing is due, but from block {start} on it is, and this submission is revealed after "
            "that.",
            hint=f"use fewer `--blocks-until-reveal`, or pay once block {start} is finalized",
        )


async def plan(client: ChainClient, settings: Settings, reveal_in_blocks: int) -> Plan:
    """Return what `--pay` would do now. Raises what would keep it from paying."""
    from chain.coldkey import coldkey_address
    from chain.paying import era_period, owner_coldkey, require_balance, spendable_rao
    from chain.payment import make_quote

    chain, cost = settings.chain, settings.evaluation_cost
    head = await client.finalized_head()
    payer = coldkey_address(chain.wallet_path, chain.wallet)
    due = await is_due(client, settings, reveal_in_blocks)
    owner = await owner_coldkey(client, chain.netuid, head)
    spendable = await spendable_rao(client, payer, head)
    if due:
        _require_price(settings, head.number)
        era_period(cost, head.number, head.number)
        quote = make_quote(
            cost, content_hash="", hotkey="", netuid=chain.netuid, destination=owner, issued_block=head.number
        )
        require_balance(quote, payer, spendable)
    amount = cost.price_at(head.number) if due else 0
    return Plan(amount, owner, payer, spendable, head.number, cost.quoted_until(head.number))


async def pay(
    client: ChainClient, settings: Settings, prepared: Prepared, hotkey: str, wish: Wish, output: Output,
    *, reveal_in_blocks: int,
) -> Paid:
    """Pay for a submission, or return the payment that was made for it before and not used yet.

    Raises what `chain.paying.pay_once` raises, `WalletError` (COLDKEY_*), `HostError` (PAYMENT_RECORD_*,
    PAYMENT_RUNNING, CLOCK_DIFFERS) and `ChainError` (PAYMENT_LAPSED, PAYMENT_NOT_STARTED,
    PAYMENT_DESTINATION_UNSURE).
    """
    from chain.clock import require_clock
    from chain.coldkey import coldkey_address
    from chain.paying import finish, pay_once, quote_for, require_balance, spendable_rao
    from node.cli.payment_file import payments_of

    chain, cost = settings.chain, settings.evaluation_cost
    await require_clock(client, settings.profile)  # without it nothing can be committed after the payment
    state = miner_state(wish.state)
    with payments_of(
        state, await client.genesis_hash(), chain.netuid, hotkey, prepared.content_hash
    ) as record:
        known = record.read()
        if known is not None:
            output.note(f"a payment for this submission is on record ({record.path}); looking for it")
            try:
                done = await finish(client, known, record)
            except ChainError as error:
                if error.code != "PAYMENT_EXPIRED":
                    raise
            else:
                _require_fresh(done, (await client.finalized_head()).number + reveal_in_blocks, settings, record.path)
                return _paid(done)
        head = await client.finalized_head()
        _require_price(settings, head.number)
        quote = await quote_for(
            client, cost, content_hash=prepared.content_hash, hotkey=hotkey, netuid=chain.netuid, block=head
        )
        payer = coldkey_address(chain.wallet_path, chain.wallet)
        require_balance(quote, payer, await spendable_rao(client, payer, head))
        signer = _coldkey(settings, wish, output)
        # Decrypting took its time: the quote is that of the present block, and of another endpoint if there is one, so
        # that a single endpoint cannot name who is paid.
        first = quote.destination
        await client.try_another()
        quote = await quote_for(
            client, cost, content_hash=prepared.content_hash, hotkey=hotkey, netuid=chain.netuid,
            block=await client.finalized_head(),
        )
        if quote.destination != first:
            raise ChainError(
                "PAYMENT_DESTINATION_UNSURE",
                f"The endpoints do not agree who owns subnet {chain.netuid}: {first} or {quote.destination}. "
                "Nothing was paid.",
                hint="the subnet may be changing hands: run the command again, with endpoints that you trust",
            )
        output.note(f"paying {tao_text(quote.amount_rao)} to {quote.destination}")
        return _paid(await pay_once(client, signer, quote, cost, record))


async def check_pointer(
    client: ChainClient, settings: Settings, prepared: Prepared, hotkey: str, wish: Wish, output: Output,
    *, reveal_in_blocks: int,
) -> None:
    """Raise what a validator would say about the payment that the command line points at.

    `ChainError` with one of the EVALUATION_COST codes. What cannot be looked up is let pass, with a note.
    """
    from chain.payment import Claim, PaymentRefusal
    from chain.payment_lookup import look_up_payment

    if wish.block is None or wish.index is None or settings.evaluation_cost.is_off:
        return
    head: BlockRef = await client.finalized_head()
    claim = Claim(
        prepared.content_hash, hotkey, settings.chain.netuid, head.number + reveal_in_blocks, wish.block, wish.index
    )
    try:
        found = await look_up_payment(client, claim, settings.evaluation_cost)
    except (ChainError, NetworkError) as error:
        output.note(f"the payment could not be checked: {error}")
        return
    if isinstance(found, PaymentRefusal):
        from config.errors import Blame

        raise ChainError(
            found.code, f"A validator would refuse this submission: {found.message}.", blame=Blame.MINER,
            hint="nothing was committed; see docs/miner.md for what makes a payment count",
        )


def forget(settings: Settings, genesis_hash: str, hotkey: str, content_hash: str, wish: Wish) -> None:
    """Drop the record of a payment whose submission is committed: the next one for the same bundle pays anew."""
    from node.cli.payment_file import payments_of

    with payments_of(miner_state(wish.state), genesis_hash, settings.chain.netuid, hotkey, content_hash) as record:
        record.discard()


def with_retry(error: CacheonError, bundle: str, url: str, choice: ChainChoice, block: int, index: int) -> CacheonError:
    """Return `error` with a hint that says how to submit without paying again."""
    words = ["cacheon chain-submit", shlex.quote(bundle), "--url", shlex.quote(url)]
    words += [f"--payment-block {block} --payment-index {index}", *choice.chain_flags()]
    for flag, value in (
        ("--wallet", choice.wallet), ("--hotkey", choice.hotkey), ("--wallet-path", choice.wallet_path)
    ):
        words += [f"{flag} {shlex.quote(value)}"] if value is not None else []
    told = f"the evaluation cost is paid; `{' '.join(words)}` submits without paying again"
    error.hint = f"{error.hint} {told}".strip()
    return error


def _coldkey(settings: Settings, wish: Wish, output: Output) -> Signer:
    from chain.coldkey import is_encrypted, load_coldkey

    path, wallet = settings.chain.wallet_path, settings.chain.wallet
    password = _given_password(wish)
    if password is None and is_encrypted(path, wallet) and not output.as_json and sys.stdin.isatty():
        password = getpass.getpass(f"Password of the coldkey of wallet {wallet}: ", sys.stderr)
    return load_coldkey(path, wallet, password)


def _given_password(wish: Wish) -> str | None:
    if wish.password_env is not None:
        password = variable(wish.password_env)
        if password is None:
            raise WalletError("COLDKEY_PASSWORD_MISSING", f"The environment variable {wish.password_env} is not set.")
        return password
    if wish.password_file is not None:
        try:
            return Path(wish.password_file).read_text("utf-8").removesuffix("\n").removesuffix("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise WalletError(
                "COLDKEY_PASSWORD_MISSING", f"The password file {wish.password_file} cannot be read: {error}."
            ) from error
    return None


def _require_fresh(done: SignedPayment, reveal_block: int, settings: Settings, path: Path) -> None:
    window = settings.evaluation_cost.window_blocks
    if done.block is not None and reveal_block + SLACK_BLOCKS - done.block > window:
        raise ChainError(
            "PAYMENT_LAPSED",
            f"The payment on record was made in block {done.block}; it counts for reveals up to block "
            f"{done.block + window}, and this one would come too late.",
            hint=f"remove {path} to pay again",
            blame=Blame.OPERATOR,
        )


def _paid(done: SignedPayment) -> Paid:
    return Paid(
        block=done.block or 0, index=done.index or 0, amount_rao=done.quote.amount_rao, payer=done.payer,
        destination=done.quote.destination, extrinsic_hash=done.hash,
    )
