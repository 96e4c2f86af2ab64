"""Every hard limit of the system, in frozen dataclasses, with its unit in the field's comment.

Nothing else holds a magic number. The archive figures are those of the deployed network, so that a bundle which is
legal there is legal here.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1024 * 1024
RECEIPT_BYTES = 64 * MIB  # of a receipt's file; the largest is a crown ledger, which grows by 1.9 kB with every crown


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
    eager_bytes: int = 8 * MIB  # contents kept before the whole archive is known to be in order
    padding_bytes: int = MIB  # zeros after the end mark, and after the gzip member; the largest record of tar tools
    extension_header_bytes: int = 64 * 1024  # one PAX or GNU extension header
    extension_total_bytes: int = MIB  # all extension headers
    extension_run: int = 8  # extension headers in a row; tar tools write a global one and one or two of a member
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
    remark_bytes: int = 4096  # remark of a payment
    dispute_passes: int = 16  # passes in which storage and events differ before the difference is recorded in a row
    timelock_ciphertext_bytes: int = 1024  # one sealed commitment; the runtime's own bound, absent from its metadata


@dataclass(frozen=True)
class EvidenceLimits:
    """Bounds on stored evidence."""

    attempt_bytes: int = 64 * MIB  # one attempt document, uncompressed
    attempt_parts: int = 3_000_000  # its objects and lists; a call has three, in some 100 bytes
    log_bytes: int = 64 * 1024  # kept tail of a sandboxed process's output


@dataclass(frozen=True)
class DirectLimits:
    """Bounds on the declarations of direct-artifact rows; the wire format of the deployed network."""

    exports: int = 16  # [[ops.aot_exports]] of one row
    profile_inputs: int = 16  # compile-profile values one export asks for
    bindings: int = 64  # binding rows of one export
    prelaunch: int = 16  # fills before one step
    requirements: int = 64  # rows of one capability requirement list
    step: int = 255  # largest step number of a plan
    factory_characters: int = 128  # name of the compiler-side function
    unsqueeze: int = 8  # inserted unit dimensions of one tensor view
    unsqueeze_reach: int = 16  # an inserted position lies in -reach..reach
    leading_dim: int = 16  # largest leading dimension
    axis: int = 15  # largest tensor axis
    assumed_alignment: int = 1 << 20  # bytes, of one pointer
    aggregate_depth: int = 4  # nested lists
    aggregate_children: int = 16  # entries of one list
    aggregate_leaves: int = 32  # leaves of one aggregate
    aggregate_dynamic: int = 16  # leaves read from a live call
    resources: int = 32  # [[ops.artifact_resources]] of one row
    resource_rank: int = 16  # extents of one resource
    resource_factors: int = 8  # factors of one extent
    resource_alignment: int = MIB  # bytes
    resource_extent: int = (1 << 31) - 1  # one extent, one factor bound, one divisor
    resource_product: int = (1 << 63) - 1  # product of the factor bounds of one extent
    resource_elements: int = 1 << 36  # elements of one resource
    resource_bytes: int = 64 << 30  # bytes of one resource
    resource_total_bytes: int = 128 << 30  # bytes of all resources of one row
    expression_nodes: int = 128  # nodes of one expression
    expression_operands: int = 8  # operands of one node
    float_text: int = 64  # characters of one exact float
    kernels: int = 1024  # kernels of one device plan
    kernel_name_characters: int = 4096
    kernel_parameters: int = 256  # formal parameters of one kernel
    kernel_parameter_bytes: int = 32_764  # one formal parameter
    launches: int = 256  # launches of one device plan
    parameter_bytes: int = 4096  # one parameter that the validator constructs
    struct_fields: int = 64  # fields of one packed struct
    tensor_map_rank: int = 5  # dimensions of one TMA descriptor
    tensor_map_dimension: int = 1 << 32  # elements of one global dimension
    tensor_map_stride: int = 1 << 40  # bytes; a global stride is smaller
    tensor_map_box: int = 256  # elements of one box dimension
    tensor_map_element_stride: int = 8
    launch_dimension: int = (1 << 32) - 1  # grid, block and cluster dimensions
    block_threads: int = 1024  # volume of one block
    cluster_blocks: int = 32  # volume of one cluster
    shared_memory_bytes: int = MIB  # dynamic shared memory of one launch
    divisor: int = (1 << 31) - 1  # divisor of a fast division


INTAKE = IntakeLimits()
CHAIN = ChainLimits()
EVIDENCE = EvidenceLimits()
DIRECT = DirectLimits()
