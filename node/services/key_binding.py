"""Has the hotkey vouch for the node's receipt key, once, and keeps that statement beside the receipts.

Invariants
1. A binding of the present key, hotkey, chain and subnet that verifies is never made again; another key (lost,
   replaced) or another hotkey gets its own, and older ones stay for older receipts.
2. Whatever fails here never stops weights; it is told once and tried again later.
"""

from __future__ import annotations

import asyncio

import structlog

from chain.key_binding import binding_of, key_id_of, sign_binding, verify_binding
from chain.signer import Signer
from config.errors import CacheonError, GradeError
from config.key_binding import KeyBinding
from node.services.context import NodeContext
from node.services.receipts import ReceiptBook, deliver
from node.store.queries import chain_view
from node.store.receipt_outbox import SealedReceipt, record_receipt
from node.store.receipt_rows import receipts_about

KIND = "key-binding.v1"
_PATIENCE_STEPS = 100  # blocks between two tries that failed


class KeyBinder:
    """Makes the binding; used by the publication service after each of its steps."""

    def __init__(self, context: NodeContext, signer: Signer, receipts: ReceiptBook) -> None:
        self._context = context
        self._signer = signer
        self._receipts = receipts
        self._is_bound = False
        self._rest = 0  # steps until the next try

    async def follow(self) -> None:
        """Make the binding if it is not there yet."""
        if self._is_bound:
            return
        if self._rest:
            self._rest -= 1
            return
        try:
            await self._bind()
        except CacheonError as error:
            self._tell(error.code, error.message)
        except Exception as error:  # noqa: BLE001 - a full disk or a defect of ours here must not end the weights' task
            self._tell("UNEXPECTED", f"{type(error).__name__}: {error}")

    async def _bind(self) -> None:
        chain = await self._context.store.read(chain_view)
        if chain is None:
            return
        wanted = binding_of(self._signer, self._receipts.public_key, chain.genesis_hash, chain.netuid)
        await deliver(self._context.store, self._receipts)
        known = await self._context.store.read(receipts_about, KIND, key_id_of(wanted))
        if not await asyncio.to_thread(self._holds, wanted, known):
            envelope = await sign_binding(self._signer, wanted)
            await self._context.store.write(record_receipt, SealedReceipt(KIND, envelope), key_id_of(wanted))
            await deliver(self._context.store, self._receipts)
            structlog.get_logger().info("receipt_key.bound", receipt_key=wanted.receipt_key, hotkey=wanted.hotkey)
        self._is_bound = True

    def _holds(self, wanted: KeyBinding, digests: tuple[str, ...]) -> bool:
        for digest in digests:
            try:
                if verify_binding(self._receipts.path(digest).read_bytes()) == wanted:
                    return True
            except (OSError, GradeError):
                continue
        return False

    def _tell(self, code: str, message: str) -> None:
        structlog.get_logger().warning("receipt_key.not_bound", code=code, message=message)
        self._rest = _PATIENCE_STEPS
