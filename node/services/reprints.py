"""Fingerprints of an older version are made anew from the published trees.

Invariants
1. An upgrade loses no protection: before anything new is screened, every published bundle has a fingerprint of the
   present version, or has been tried.
2. The tree is read by the sandboxed child alone, as at its first screening. A bundle that newer rules refuse keeps its
   old fingerprint, which equals no new one; its content hash still counts.
3. Interrupted work goes on where it stopped: each bundle is one transaction.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import structlog
from sqlalchemy import Connection, select

from config.errors import CacheonError
from intake.content_hash import read_tree
from intake.fingerprint import VERSION
from intake.package import package_bytes
from intake.public_code import public_code
from intake.publish import open_published, publish
from intake.report import IntakeReport
from node.services.copies import fail_waiting_copies
from node.store.evidence_rows import BundleRow, record_bundle
from node.store.job_rows import renew_fingerprint
from node.store.part_rows import record_parts
from node.store.schema import bundles

if TYPE_CHECKING:
    from node.services.context import NodeContext
    from node.services.intake import Screener
    from qualify.intake_runner import ScreenedBundle


def record_report(connection: Connection, report: IntakeReport) -> None:
    """Keep what the report of a published bundle says about its identity."""
    record_bundle(connection, BundleRow(
        content_hash=report.content_hash, bundle_id=report.bundle_id, target_id=report.target_id,
        fingerprint=report.fingerprint, pieces=" ".join(report.pieces), print_version=report.fingerprint_version,
    ))
    record_parts(connection, report.content_hash, report.parts)


async def reprint_all(context: NodeContext, screener: Screener) -> int:
    """Bring the fingerprints of all published bundles to the present version; return how many were made anew."""
    await asyncio.to_thread(public_code)  # what every copy check asks for; it is made once
    stale = await context.store.read(_stale)
    done = 0
    for content_hash in stale:
        try:
            screened = await asyncio.to_thread(_screened_again, context, screener, content_hash)
        except CacheonError as error:
            structlog.get_logger().warning("reprint.failed", content_hash=content_hash, code=error.code)
            continue
        await context.store.write(_replace, screened.report)
        done += 1
    if stale:
        structlog.get_logger().info("reprint.ended", version=VERSION, bundles=len(stale), renewed=done)
    return done


def _stale(connection: Connection) -> list[str]:
    return list(connection.execute(
        select(bundles.c.content_hash).where(bundles.c.print_version != VERSION).order_by(bundles.c.published_ms)
    ).scalars())


def _screened_again(context: NodeContext, screener: Screener, content_hash: str) -> ScreenedBundle:
    """Screen a published tree as if it came again, and publish the newer report."""
    published = open_published(context.layout.bundles, content_hash)
    archive = Path(context.layout.archives) / f"reprint-{content_hash}"
    try:
        archive.write_bytes(package_bytes(read_tree(published.tree, strict=True)))
        # The tree was accepted once, whatever spelling of the ABI was right then.
        screened = screener.run(archive, content_hash, allow_legacy_abi=True)
    finally:
        archive.unlink(missing_ok=True)
    publish(screened.stream, screened.report, context.layout.bundles)
    return screened


def _replace(connection: Connection, report: IntakeReport) -> None:
    """Store the new fingerprint with the bundle and with every submission that has its content."""
    record_report(connection, report)
    renew_fingerprint(connection, report.content_hash, report.fingerprint)
    fail_waiting_copies(connection, report.fingerprint)
