"""The call contract of a slot: what is called, with which names, and how its answer is compared.

Invariants
1. A contract is data. Its digest names it: the same contract has the same digest on every machine.
2. No floats: thresholds and tolerances are decimal text in plain notation without trailing zeros; zero is `0`.
3. Names of the input and output forms, the reference and the verification profile follow from the slot id.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

import msgspec

from config.canonical import domain_digest

_DECIMAL = re.compile(r"(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{0,17}[1-9])?")

CALL_KINDS = ("op", "block", "collective")
CORRECTNESS_MODES = ("allclose", "matched_ratio", "cosine", "topk_overlap")


class Tolerance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Absolute and relative tolerance of one element type (decimal text)."""

    dtype: str
    atol: str
    rtol: str


class Correctness(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How an answer is compared with the reference; ratios are decimal text in 0..1, `top_k` is a count."""

    mode: str
    top_k: int = 0
    min_ratio: str = "1"
    min_cosine: str = "0"
    max_rel_norm_err: str = "0"
    min_overlap: str = "0"


class Contract(msgspec.Struct, frozen=True, dict=True):
    """The contract of one slot. `prepare` names the load-time half, None when the slot has none.

    `kl_threshold` bounds the divergence of the model's output distribution (decimal text, nats), None when not asked.
    """

    slot: str
    call: str
    entry: str
    graph_dynamic_inputs: tuple[str, ...]
    correctness: Correctness
    tolerances: tuple[Tolerance, ...]
    binding_family: str
    prepare: str | None = None
    kl_threshold: str | None = None

    def document(self) -> dict[str, object]:
        """Return the contract as the document its digest is taken over."""
        return {
            "schema_version": 1,
            "slot_id": self.slot,
            "kind": self.call,
            "entry": self.entry,
            "prepare": self.prepare,
            "graph_dynamic_inputs": list(self.graph_dynamic_inputs),
            "input_abi_id": f"{self.slot}.input.v1",
            "output_abi_id": f"{self.slot}.output.v1",
            "reference_id": f"{self.slot}.reference.v1",
            "verification_profile_id": f"{self.slot}.verify.v1",
            "binding_family_id": self.binding_family,
            "correctness": msgspec.to_builtins(self.correctness),
            "tolerances": [msgspec.to_builtins(item) for item in sorted(self.tolerances, key=lambda item: item.dtype)],
            "kl_threshold": self.kl_threshold,
        }

    @functools.cached_property
    def digest(self) -> str:
        """Lower-hex identity of the contract."""
        return domain_digest("cacheon.target-contract", self.document())

    def complaints(self) -> list[str]:
        """Return what is wrong with the contract's values, [] when nothing is."""
        found = []
        if self.call not in CALL_KINDS:
            found.append(f"call {self.call!r} is not one of {', '.join(CALL_KINDS)}")
        if self.correctness.mode not in CORRECTNESS_MODES:
            found.append(f"mode {self.correctness.mode!r} is not one of {', '.join(CORRECTNESS_MODES)}")
        names = (self.entry, *self.graph_dynamic_inputs, *filter(None, (self.prepare,)))
        found += [f"{name!r} is not an identifier" for name in names if not name.isidentifier()]
        found += [f"{text!r} is not a plain decimal" for text in self._decimals() if not _DECIMAL.fullmatch(text)]
        if len({item.dtype for item in self.tolerances}) != len(self.tolerances):
            found.append("a dtype has two tolerances")
        if self.correctness.top_k < 0 or (self.correctness.mode == "topk_overlap") != (self.correctness.top_k > 0):
            found.append("top_k is set exactly for topk_overlap")
        return found

    def _decimals(self) -> Iterable[str]:
        yield from (self.correctness.min_ratio, self.correctness.min_cosine)
        yield from (self.correctness.max_rel_norm_err, self.correctness.min_overlap)
        for item in self.tolerances:
            yield from (item.atol, item.rtol)
        if self.kl_threshold is not None:
            yield self.kl_threshold


def atomic_contract_digest(target_id: str, semantics: str, member_digests: Iterable[str]) -> str:
    """Return the identity of an atomic target's contract: its semantics and its members' contracts, in member order."""
    document = {
        "schema_version": 1,
        "target_id": target_id,
        "atomic_semantics_id": semantics,
        "member_contract_digests": list(member_digests),
    }
    return domain_digest("cacheon.atomic-target-contract", document)
