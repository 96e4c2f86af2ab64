"""Balances: free TAO, transfers and fees.

Invariants
1. Amounts are integers in rao (1 TAO = 10**9 rao) and never negative.
2. `keep_alive` transfers leave at least the existential deposit behind.
"""

from __future__ import annotations

from chain.devnet.context import Context, call
from chain.devnet.faults import DispatchError
from chain.devnet.pallets.system import account, put_account
from chain.devnet.scale import Reader
from chain.devnet.storage import Session, StorageView

RAO_PER_TAO = 10**9
EXISTENTIAL_DEPOSIT = 500
_BASE_FEE = 100_000
_FEE_PER_BYTE = 100


def fee(length: int) -> int:
    """Return the inclusion fee, in rao, of an extrinsic of `length` bytes that is not free."""
    return _BASE_FEE + _FEE_PER_BYTE * length


def free_balance(state: StorageView, who: bytes) -> int:
    """Return the free balance in rao."""
    return int(account(state, who)["data"]["free"])


def set_free(state: Session, who: bytes, amount: int) -> None:
    """Set the free balance in rao and keep the total issuance in step."""
    record = account(state, who)
    change = amount - record["data"]["free"]
    record["data"]["free"] = amount
    record["providers"] = 1 if amount else 0
    put_account(state, who, record)
    issuance = int(state.get("Balances", "TotalIssuance"))
    state.put("Balances", "TotalIssuance", value=issuance + change)


def withdraw(context: Context, who: bytes, amount: int) -> None:
    """Burn `amount` rao of an account that holds at least that much."""
    set_free(context.state, who, free_balance(context.state, who) - amount)
    context.emit("Balances", "Withdraw", {"who": who, "amount": amount})


def transfer(context: Context, source: bytes, target: bytes, amount: int, *, keep_alive: bool) -> None:
    """Move `amount` rao."""
    state = context.state
    free = free_balance(state, source)
    if free < amount:
        raise DispatchError("Balances", "InsufficientBalance")
    left = free - amount
    if keep_alive and source != target and left < EXISTENTIAL_DEPOSIT:
        raise DispatchError("Balances", "Expendability")
    if free_balance(state, target) + amount < EXISTENTIAL_DEPOSIT:
        raise DispatchError("Balances", "ExistentialDeposit")
    if source != target:
        set_free(state, source, 0 if left < EXISTENTIAL_DEPOSIT else left)
        set_free(state, target, free_balance(state, target) + amount)
    context.emit("Balances", "Transfer", {"from": source, "to": target, "amount": amount})


def read_address(arguments: Reader) -> bytes:
    """Read a MultiAddress; only plain account ids are taken."""
    if arguments.unsigned(1) != 0:
        raise DispatchError("System", "CallFiltered")
    return arguments.take(32)


@call("Balances", "transfer_keep_alive")
def transfer_keep_alive(context: Context, signer: bytes, arguments: Reader) -> None:
    """Transfer and keep the sender's account alive."""
    target, amount = read_address(arguments), arguments.compact()
    transfer(context, signer, target, amount, keep_alive=True)


@call("Balances", "transfer_allow_death")
def transfer_allow_death(context: Context, signer: bytes, arguments: Reader) -> None:
    """Transfer, even when the sender's account ends."""
    target, amount = read_address(arguments), arguments.compact()
    transfer(context, signer, target, amount, keep_alive=False)


@call("Balances", "transfer_all")
def transfer_all(context: Context, signer: bytes, arguments: Reader) -> None:
    """Transfer everything, or everything but the existential deposit."""
    target, keep_alive = read_address(arguments), bool(arguments.unsigned(1))
    amount = free_balance(context.state, signer) - (EXISTENTIAL_DEPOSIT if keep_alive else 0)
    transfer(context, signer, target, max(amount, 0), keep_alive=keep_alive)
