"""Signing a planned row, journalling the bytes, and submitting them; the only place where weights are signed.

Invariants
1. The nonce counts what waits in the pool, the era begins at the finalized block, and both are in the journal before
   the first submission.
2. Version key and commit-reveal convention are those of the newest block; a version key is never below the subnet's.
"""

from __future__ import annotations

from chain.abi import Call
from chain.client import SignedCall
from chain.hyperparameters import Hyperparameters
from chain.publication_plan import Plan
from chain.publication_record import PublicationRecord, publication_id
from chain.publication_step import PublicationStep, StepResult
from chain.sealing import SealedRow, sealer_for
from chain.signer import Signer
from chain.weights import WeightRow


async def sign_and_submit(
    step: PublicationStep, signer: Signer, head: PublicationRecord | None, plan: Plan
) -> StepResult:
    """Publish a plan that has a row and nothing to wait for."""
    if plan.row is None or plan.target is None:
        return StepResult(head, step.block, plan.waiting)
    row, newest, epoch = plan.row, plan.newest.parameters, plan.state.parameters.epoch
    version_key = max(plan.state.parameters.version_key, newest.version_key)
    signed = await _sign(step, signer, row, newest, version_key)
    record = PublicationRecord(
        publication_id=publication_id(signed.hash, epoch, plan.target.digest),
        epoch=epoch,
        vector_digest=plan.target.digest,
        status="intent",
        netuid=step.options.netuid,
        hotkey=signer.ss58_address,
        uids=row.uids,
        values=row.values,
        hotkeys=row.hotkeys,
        extrinsic_hex=signed.data.hex(),
        extrinsic_hash=signed.hash,
        nonce=signed.nonce,
        era_end_block=signed.era_end_block,
        version_key=version_key,
        commit_reveal=newest.commit_reveal_enabled,
        submit_block=step.block.number,
        mechanism=step.options.mechanism,
        spec_version=signed.spec_version,
    )
    return await step.submit(await step.append(record, head))


async def _sign(
    step: PublicationStep, signer: Signer, row: WeightRow, newest: Hyperparameters, version_key: int
) -> SignedCall:
    client, options = step.client, step.options
    arguments: dict[str, object] = {"netuid": options.netuid, "mecid": options.mechanism}
    if newest.commit_reveal_enabled:
        call = Call.COMMIT_WEIGHTS
        plain = SealedRow(signer.public_key, row.uids, row.values, version_key)
        sealed = await sealer_for(options.profile).seal_row(client, plain, newest)
        arguments |= {
            "commit": sealed.ciphertext,
            "reveal_round": sealed.reveal_round,
            "commit_reveal_version": newest.commit_reveal_version,
        }
    else:
        call = Call.SET_WEIGHTS
        arguments |= {"dests": list(row.uids), "weights": list(row.values), "version_key": version_key}
    nonce = await client.next_nonce(signer.ss58_address)
    period = options.era_blocks
    while period < options.era_blocks + newest.block.number - step.block.number:
        period *= 2  # finality is behind: the era begins at the finalized block and has to reach beyond the newest
    return await client.sign(call, arguments, signer, nonce=nonce, at=step.block, period=period)
