"""Golden rows about rebuild.json, patches and CUDA on which we deliberately answer otherwise than the reference.

docs/bundle-sources.md repeats the reasons for readers; a test compares the names.
"""

from __future__ import annotations

# dep_patch_vectors: the right result where the reference's differs, None for a refusal.
PATCHES: dict[str, tuple[str | None, str]] = {
    "new_start_ignored": (None, "git and GNU patch place a hunk whose sides disagree in different lines"),
    "apply_insert_zero_context": ("1\n2\nNEW\n3\n4\n", "an insertion goes after the line it names, as in git"),
}

# cuda_include_vectors: accepted by the reference, refused here.
CUDA = {
    "trigraph": "trigraphs are directives in some language modes and text in others",
    "block_comment_split": "a comment between # and include does not hide the include",
    "has_include": "a question for a file follows the rule for including it",
}
