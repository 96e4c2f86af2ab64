"""Golden rows on which we deliberately answer otherwise than the reference, each with its reason.

The reasons are repeated for readers in docs/bundle-identity.md; a test compares the two lists of names.
"""

from __future__ import annotations

# content_hash_vectors: trees that we refuse to hash.
CONTENT_HASH = {"t09_symlinks_skipped": "links are refused, not skipped: what is hashed is what is packaged"}

# archive_vectors: archives that we refuse.
ARCHIVE = {
    "case_collision": "names that differ only in case mean different trees on different file systems",
    "concatenated_gzip": "a second gzip member is content that other readers may see and the hash does not cover",
}

# manifest_vectors: accepted by the reference, refused here.
MANIFEST = {
    "bundle_id_padded": "blanks around values are refused",
    "bundle_id_dots_only": "dots alone are no identifier",
    "bundle_id_long": "identifiers have a length bound",
    "bundle_id_integer": "no coercion to text",
    "bundle_id_bool": "no coercion to text",
    "abi_legacy_exact": "the legacy spelling needs a submission from before the cut-over",
    "abi_padded": "blanks around values are refused",
    "unknown_top_level_key": "unknown keys are errors",
    "unknown_top_level_table": "unknown keys are errors",
    "slot_padded": "blanks around values are refused",
    "source_symlink_inside": "no links in bundles",
    "source_in_pycache": "identity-excluded files are not part of a bundle",
    "entry_keyword": "an entry has to be callable by name",
    "entry_unicode": "entries are ASCII: Python folds other identifiers",
    "entry_dunder": "dunder names are not entries",
    "competition_mode_padded": "blanks around values are refused",
}

# tree_scan_vectors: (accepted here, reason).
TREE = {
    "other.pyo": (True, "outside the content hash, so outside the bundle, like every cache"),
    "git_dir": (True, "outside the content hash, so outside the bundle"),
    "readme_zip": (False, "content decides, not the name"),
    "readme_elf_no_suffix": (False, "content decides, not the name"),
    "metadata_json_elf": (False, "content decides, not the name"),
    "readme_cubin": (False, "content decides, not the name"),
}

# python_closure_vectors: accepted by the reference.
CLOSURE = {
    "unreferenced_not_in_closure": "one policy covers every Python file, reachable or not",
    "init_and_module_same_name": "the module that its package hides is executable material nobody declared",
    "hyphen_module_path": "a file without a kind is refused by the tree check",
}

# capability_vectors / eligibility: accepted by the reference.
ELIGIBILITY = {"unknown top-level metadata ignored (weak)": "a misspelt key would drop its constraints in silence"}

# capability_vectors / values: (canonical here, reason).
VALUES = {
    "sm__90": ("sm90", "a canonical form is its own: what intake proves about a domain is what routing reads back")
}

# ip_vectors: accepted by the reference.
ADDRESSES = {
    "239.255.255.250": "multicast",
    "192.0.0.9": "protocol assignments",
    "192.88.99.1": "6to4 relay",
    "fec0::1": "site-local",
    "64:ff9b::808:808": "NAT64 carries an IPv4 address",
    "2002:7f00:1::": "6to4 carries an IPv4 address",
    "2002:808:808::1": "6to4 carries an IPv4 address",
}

# target_resolution_vectors: full inspection accepts, we refuse.
RESOLUTION = {
    "prepare_on_plain_slot": "the catalog allows prepare only where a slot has one",
    "override_unknown_point": "override point and base kernel are checked against the catalog",
    "override_on_silu": "the catalog allows overrides only where a slot has a point",
    "base_kernel_only": "the catalog allows overrides only where a slot has a point",
    "override_on_moe": "the torch form that an override requires is looked for at intake",
    "cuda_with_builder": "the header beside the declared source is declared by nobody",
    "dep_patch_outside_glob": "where a patch may go is decided at intake",
}
