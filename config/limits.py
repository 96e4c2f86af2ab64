"""Every hard limit of the system, in frozen dataclasses, with its unit in the field's comment.

Nothing else holds a magic number. The archive figures are those of the deployed network, so that a bundle which is
legal there is legal here.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True)
class IntakeLimits:
    """Bounds on hostile archives and bundle trees."""

    archive_bytes: int = 64 * MIB  # compressed bytes taken from a host
    extracted_bytes: int = 256 * MIB  # sum of file contents
    members: int = 4096  # logical members (files and directories)
    headers: int = 8192  # raw tar headers
    file_bytes: int = 16 * MIB  # one file
    text_file_bytes: int = 8 * MIB  # one file that is scanned (.py .cu .cuh .patch .diff .toml .json)
    text_total_bytes: int = 32 * MIB  # all scanned files
    extension_header_bytes: int = 64 * 1024  # one PAX or GNU extension header
    extension_total_bytes: int = MIB  # all extension headers
    path_bytes: int = 1024  # one relative path, UTF-8
    path_depth: int = 32  # components of one path
    syntax_depth: int = 100  # nesting of one Python syntax tree
    syntax_nodes: int = 400_000  # nodes of one Python syntax tree
    redirects: int = 5  # HTTP redirects of one fetch
    fetch_address_count: int = 64  # addresses one host name may resolve to
    component_bytes: int = 255  # one path component, UTF-8 (NAME_MAX)
    identifier_characters: int = 128  # bundle id, slot, entry, variant ...
    manifest_bytes: int = MIB  # manifest.toml
    metadata_bytes: int = MIB  # one metadata JSON file, and rebuild.json
    op_rows: int = 64  # [[ops]] rows
    list_entries: int = 256  # entries of one array in the manifest or metadata
    findings: int = 200  # findings reported for one bundle
    source_punctuation: int = 1_600_000  # punctuation bytes of one .py file; bounds its syntax tree before it is built


@dataclass(frozen=True)
class ChainLimits:
    """Bounds on what is read from, or written to, the chain."""

    payload_bytes: int = 1024  # one reveal payload
    url_characters: int = 8192  # URL inside a payload
    scan_blocks: int = 64  # finalized blocks read in one incremental pass


@dataclass(frozen=True)
class EvidenceLimits:
    """Bounds on stored evidence."""

    attempt_bytes: int = 64 * MIB  # one attempt document, uncompressed
    log_bytes: int = 64 * 1024  # kept tail of a sandboxed process's output


INTAKE = IntakeLimits()
CHAIN = ChainLimits()
EVIDENCE = EvidenceLimits()
