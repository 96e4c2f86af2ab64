"""What one submission costs, as a function of the chain's blocks and of the settings alone.

Invariants
1. A price holds from a block on; the price of a payment is the one in force at the block that holds the payment.
2. A quote holds for `quote_blocks` blocks, the quote "nothing is due" included: a submission without a payment owes
   nothing when nothing was due at any of the `quote_blocks` blocks up to its reveal.
3. Everything here is pure and exact: rao and block numbers are integers.
"""

from __future__ import annotations

import msgspec

_LARGEST_AMOUNT = 2**63 - 1  # rao; what stores and the chain's balances both take


class EvaluationCostSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a submission costs. 0 rao means that nothing is due; 1 TAO is 1,000,000,000 rao."""

    amount_rao: int = 0  # the price before the first of `changes`
    changes: tuple[tuple[int, int], ...] = ()  # (from_block, amount_rao), by rising block
    quote_blocks: int = 300  # how long a quote holds
    window_blocks: int = 7200  # how long before its reveal a submission may have been paid

    @property
    def is_off(self) -> bool:
        """Whether nothing is ever due."""
        return self.amount_rao == 0 and all(amount == 0 for _, amount in self.changes)

    def price_at(self, block: int) -> int:
        """Return the price in force at `block`, in rao."""
        price = self.amount_rao
        for start, amount in self.changes:
            if start > block:
                break
            price = amount
        return price

    def next_change(self, block: int) -> int | None:
        """Return the first block after `block` at which another price holds, or None."""
        now = self.price_at(block)
        return next((start for start, amount in self.changes if start > block and amount != now), None)

    def quoted_until(self, block: int) -> int:
        """Return the last block at which a quote made at `block` can be paid."""
        change = self.next_change(block)
        return min(block + self.quote_blocks, change - 1 if change is not None else block + self.quote_blocks)

    def is_due(self, reveal_block: int) -> bool:
        """Whether a submission revealed in `reveal_block` has to be paid for."""
        first = max(reveal_block - self.quote_blocks, 0)
        starts = (first, *(start for start, _ in self.changes if first < start <= reveal_block))
        return all(self.price_at(start) > 0 for start in starts)

    def required_for(self, payment_block: int, reveal_block: int) -> int:
        """Return what a payment in `payment_block` for a reveal in `reveal_block` must amount to, in rao.

        A payment that was made while nothing was due is measured by the price at the reveal.
        """
        return self.price_at(payment_block) or self.price_at(reveal_block)

    def complaint(self) -> str:
        """Return why these settings cannot be used, or ""."""
        amounts = (self.amount_rao, *(amount for _, amount in self.changes))
        starts = [start for start, _ in self.changes]
        for holds, text in (
            (all(0 <= amount <= _LARGEST_AMOUNT for amount in amounts), "every price lies between 0 and 2^63 - 1 rao"),
            (all(start > 0 for start in starts), "evaluation_cost.changes name blocks above 0"),
            (starts == sorted(set(starts)), "evaluation_cost.changes are sorted by block, each block once"),
            (self.quote_blocks >= 8, "evaluation_cost.quote_blocks is at least 8"),
            (self.window_blocks >= self.quote_blocks, "evaluation_cost.window_blocks is at least quote_blocks"),
        ):
            if not holds:
                return text
        return ""
