"""Shared material of the intake tests: golden vectors, a small bundle that passes, and trees on disk."""

from __future__ import annotations

import base64
import functools
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent.parent / "golden"

MANIFEST = b"""bundle_id = "alice-silu"
abi_version = "cacheon-op-abi-v0"

[competition]
target = "activation.silu_and_mul"
mode = "slot"

[[ops]]
slot = "activation.silu_and_mul"
source = "kernels/kernel.py"
entry = "silu_and_mul"
"""
KERNEL = b"""import torch


def silu_and_mul(x, out):
    half = x.shape[-1] // 2
    out.copy_(torch.nn.functional.silu(x[..., :half]) * x[..., half:])
"""


@functools.cache
def golden(name: str) -> Any:
    """Return one file of golden vectors."""
    return json.loads((GOLDEN / f"{name}.json").read_text("utf-8"))


def bundle(**changes: bytes | None) -> dict[str, bytes]:
    """Return a bundle that passes; `changes` are keyed by path with `/` as `__`-free keyword via `bundle(**{...})`."""
    files: dict[str, bytes] = {"manifest.toml": MANIFEST, "kernels/kernel.py": KERNEL, "README.md": b"# a kernel\n"}
    for path, content in changes.items():
        if content is None:
            files.pop(path, None)
        else:
            files[path] = content
    return files


def entry_files(entries: list[dict[str, Any]]) -> dict[str, bytes]:
    """Return the file table of golden `entries`, which must be regular files."""
    return {item["path"]: base64.b64decode(item.get("data_b64", "")) for item in entries if item["type"] == "file"}


def plant(root: Path, entries: list[dict[str, Any]]) -> Path:
    """Write golden `entries` (files, folders, links) below `root` and return it."""
    root.mkdir(parents=True, exist_ok=True)
    for item in entries:
        path = root / item["path"]
        path.parent.mkdir(parents=True, exist_ok=True)
        if item["type"] == "file":
            path.write_bytes(base64.b64decode(item.get("data_b64", "")))
            path.chmod(int(item.get("mode") or "0o644", 8))
        elif item["type"] == "symlink":
            path.symlink_to(item["target"])
        elif item["type"] == "hardlink":
            os.link(root / item["target"], path)
        else:
            path.mkdir(parents=True, exist_ok=True)
    return root


def write_tree(root: Path, files: dict[str, bytes]) -> Path:
    """Write a file table below `root` and return it."""
    for path, content in files.items():
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return root


def tar_gz(members: list[tarfile.TarInfo | tuple[str, bytes]], **options: Any) -> bytes:
    """Return a tar.gz made by the standard library from files `(name, content)` or bare headers."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", **options) as archive:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                archive.addfile(member)
            else:
                info = tarfile.TarInfo(member[0])
                info.size = len(member[1])
                archive.addfile(info, io.BytesIO(member[1]))
    return buffer.getvalue()
