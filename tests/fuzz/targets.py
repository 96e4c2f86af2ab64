"""One fuzz target per parser that hostile bytes reach, with what has to hold when an input is accepted.

Where there is a second reader of the same format (Python's tarfile, urllib) an accepted input has to mean the same to
it: one reading exists or none.
"""

from __future__ import annotations

import base64
import functools
import gzip
import io
import json
import tarfile
import urllib.parse
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from chain.payload import Payload, decode_payload, encode_payload
from chain.payment import Claim, PaymentRefusal, Quote, check_remark, decode_remark, encode_remark, remark_in
from config.errors import IntakeError, InternalError
from config.evaluation_cost import EvaluationCostSettings
from config.slot_resources import load_slot_resources
from config.target_catalog import load_catalog
from config.urls import parse_url
from intake.archive import unpack
from intake.content_hash import hash_files
from intake.cuda_sources import load_cuda
from intake.diff_apply import apply_file
from intake.direct.identity import direct_identity
from intake.direct.row import read_direct_row
from intake.direct.where import row_place
from intake.domain import effective_domain, read_metadata, read_row_metadata
from intake.file_stream import encode_stream, read_stream
from intake.manifest import load_manifest
from intake.package import package_bytes
from intake.rebuild import read_rebuild
from intake.refusal import Findings
from intake.report import decode_report, encode_report, refusal_report
from intake.screen import screen_archive, screen_files
from intake.unified_diff import parse_diff
from qualify.intake_frame import answer_parts, read_answer
from tests.fuzz.engine import Target, complaint, shape_of
from tests.intake.direct.test_fuzz import SEEDS as DIRECT_SEEDS
from tests.intake.direct.test_identity import CAPABILITIES
from tests.intake.hostile_archives import BLOCK, HOSTILE
from tests.intake.support import KERNEL, MANIFEST, bundle, golden

ROOT = Path(__file__).parents[2]
_SMALL = 20_000  # bytes; larger seeds make every execution slow


def _small(seeds: Sequence[bytes]) -> list[bytes]:
    return [seed for seed in dict.fromkeys(seeds) if len(seed) <= _SMALL]


def _text(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _judge(findings: Findings) -> str:
    """Return the shape of what was found, "" for nothing; a finding that is no good refusal is a failure."""
    documents = findings.documents()
    for document in documents:
        wrong = complaint(document)
        assert not wrong, wrong
    return " + ".join(sorted({shape_of(document) for document in documents}))[:300]


# gzip and tar


@functools.cache
def _archives() -> list[bytes]:
    recorded = [row["archive_b64"] for row in golden("archive_vectors") if row.get("archive_b64")]
    recorded += [row["archive_b64"] for row in golden("archives")]
    built = [build() for name, (build, _) in HOSTILE.items() if not name.startswith(("bomb", "endless", "too many"))]
    return _small([*map(base64.b64decode, recorded), *built, package_bytes(bundle())])


@functools.cache
def _tars() -> list[bytes]:
    found = []
    for archive in _archives():
        try:
            found.append(gzip.decompress(archive))
        except (OSError, EOFError, zlib.error):
            continue
    return _small(found)


def _read_gzip(data: bytes) -> str:
    _same_to_tarfile(data, unpack(data))
    return ""


def _with_checksums(blocks: bytes) -> bytes:
    """Return tar blocks with the checksum of everything that looks like a header made right."""
    raw = bytearray(blocks)
    for start in range(0, len(raw) - BLOCK + 1, BLOCK):
        if raw[start + 257 : start + 262] == b"ustar":
            total = sum(raw[start : start + 148]) + 8 * 32 + sum(raw[start + 156 : start + BLOCK])
            raw[start + 148 : start + 156] = b"%06o\x00 " % total
    return bytes(raw)


def _read_tar(data: bytes) -> str:
    archive = gzip.compress(_with_checksums(data), compresslevel=1, mtime=0)
    _same_to_tarfile(archive, unpack(archive))
    return ""


def _same_to_tarfile(archive: bytes, files: dict[str, bytes]) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz", ignore_zeros=False) as other:
        theirs = {member.name: other.extractfile(member) for member in other.getmembers() if not member.isdir()}
        contents = {name: file.read() for name, file in theirs.items() if file is not None}
    wrappers = {name.partition("/")[0] for name in contents}
    if len(wrappers) == 1 and (wrapper := wrappers.pop()) not in contents:
        contents = {name[len(wrapper) + 1 :]: content for name, content in contents.items()}
    assert contents == files, "tarfile reads something else"
    assert hash_files(unpack(package_bytes(files))) == hash_files(files)


def _read_screen(data: bytes) -> str:
    """Screen blocks as an archive under the right commitment; the answer has to survive the way to the parent."""
    archive = gzip.compress(_with_checksums(data), compresslevel=1, mtime=0)
    expected = "0" * 64
    try:
        expected = hash_files(unpack(archive))
        screened = screen_archive(archive, expected)
    except IntakeError as error:
        report = encode_report(refusal_report(error, content_hash=expected))
        read_answer(memoryview(b"".join(answer_parts(report, "", (), 0))), expected)
        raise
    stream = b"".join(encode_stream(screened.files))
    answer = answer_parts(encode_report(screened.report), expected, (stream,), len(stream))
    read_answer(memoryview(b"".join(answer)), expected)
    return ""


def _bundles() -> list[bytes]:
    recorded = [row["entries"] for row in golden("target_resolution_vectors")]
    tables = [bundle(), *({item["path"]: base64.b64decode(item["data_b64"]) for item in row} for row in recorded)]
    for example in sorted((ROOT / "examples").iterdir()):
        if example.is_dir():
            paths = [path for path in example.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
            tables.append({path.relative_to(example).as_posix(): path.read_bytes() for path in paths})
    return _small([gzip.decompress(package_bytes(table)) for table in tables])


# declarations


def _manifests() -> list[bytes]:
    return _small([base64.b64decode(row["manifest_b64"]) for row in golden("manifest_vectors")] + [MANIFEST])


def _read_manifest(data: bytes) -> str:
    findings = Findings()
    files = {**bundle(), "k.py": KERNEL, "metadata/a.json": b"{}", "c.cu": b"", "p.patch": b"", "manifest.toml": data}
    manifest = load_manifest(files, findings, allow_legacy_abi=True)
    assert manifest is not None or findings
    return _judge(findings)


def _metadata() -> list[bytes]:
    rows = golden("capability_vectors")
    values = [row["metadata"] for part in ("metadata_parse", "eligibility", "match") for row in rows[part]]
    return _small([_text(json.dumps(value, ensure_ascii=False)) for value in values])


def _read_metadata(data: bytes) -> str:
    shapes = []
    readers: tuple[Callable[[], dict[str, Any]], ...] = (
        lambda: read_metadata(data),
        lambda: read_row_metadata(data, "norm.rmsnorm"),
    )
    for read in readers:
        try:
            domain = effective_domain(read())
        except IntakeError as error:
            findings = Findings()
            findings.take(error)
            shapes.append(_judge(findings))
        else:
            assert effective_domain(json.loads(json.dumps(domain.render()))) == domain
    return " + ".join(shapes)


def _direct_rows() -> list[bytes]:
    return [json.dumps({"slot": slot, "row": row}).encode() for row, slot, _ in DIRECT_SEEDS]


def _read_direct(data: bytes) -> str:
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return "no JSON"
    if not isinstance(document, dict) or not isinstance(document.get("row"), dict):
        return "no row"
    slot = document.get("slot") if document.get("slot") in load_slot_resources() else "norm.rmsnorm"
    findings = Findings()
    parsed = read_direct_row(
        document["row"],
        findings.take,
        slot=slot,
        variant="v",
        metadata_capabilities=CAPABILITIES,
        where=row_place(0),
    )
    assert (parsed is None) == bool(findings)
    if parsed is not None:
        direct_identity(parsed)
    return _judge(findings)


def _rebuilds() -> list[bytes]:
    return [_text(row["rebuild_json"]) for row in golden("rebuild_vectors") if "rebuild_json" in row]


def _read_rebuild(data: bytes) -> str:
    findings = Findings()
    plan = read_rebuild(data, findings, load_catalog().builders)
    assert plan is not None or findings
    return _judge(findings)


# sources


def _patches() -> list[bytes]:
    return _small([_text(row["patch"]) for row in golden("dep_patch_vectors")])


def _read_patch(data: bytes) -> str:
    for patch in parse_diff("p.patch", data):
        if patch.is_new:
            apply_file(patch, None)
            continue
        size = max(hunk.start + len(hunk.old) for hunk in patch.hunks)
        if size > 10_000:
            continue
        lines = [b"line"] * size
        for hunk in patch.hunks:
            lines[hunk.start : hunk.start + len(hunk.old)] = hunk.old
        if not any(b"\n" in line for line in lines):
            apply_file(patch, b"\n".join([*lines, b""]))
    return ""


def _cuda() -> list[bytes]:
    return _small([_text(row["cu"]) for row in golden("cuda_include_vectors")])


def _read_cuda(data: bytes) -> str:
    findings = Findings()
    files = {"c.cu": data, "h.cuh": data[::2], "sub/h.cuh": b"#pragma once\n"}
    load_cuda(dict.fromkeys(files, 9), files, findings)
    return _judge(findings)


def _python() -> list[bytes]:
    sources = [_text(row["source"]) for row in golden("static_scan_vectors")]
    for row in golden("copy_vectors")["vectors"]:
        sources += [_text(text) for path, text in row["earlier"].items() if path.endswith(".py")]
    return _small([KERNEL, *sources])


def _read_python(data: bytes) -> str:
    screen_files(bundle(**{"kernels/kernel.py": data}))
    return ""


# the chain's side


def _payloads() -> list[bytes]:
    rows = golden("payload_vectors")
    return [_text(row["output"]) for row in rows if row.get("output")] + [
        _text(row["data"]) for row in rows if isinstance(row.get("data"), str)
    ]


def _read_payload(data: bytes) -> str:
    found = decode_payload(data)
    if isinstance(found, Payload):
        assert encode_payload(found) == data
        return ""
    return found.code


_PAID = Quote(10**9, "ab" * 32, "5Owner", 307, "5Hotkey", 7, 2)


def _remarks() -> list[bytes]:
    good = encode_remark(_PAID)
    return [good, b"\x84\x00" + good + b"\x00", good + good, good.replace(b"2", b"2.0"), good[:-1]]


def _read_remark(data: bytes) -> str:
    found = remark_in(data)
    assert found is None or found in data
    quote = decode_remark(data)
    assert quote is None or encode_remark(quote) == data
    claim = Claim("ab" * 32, "5Hotkey", 2, 20, 10, 1)
    judged = check_remark(claim, EvaluationCostSettings(amount_rao=10**9), data)
    return judged.code if isinstance(judged, PaymentRefusal) else ""


def _urls() -> list[bytes]:
    return [_text(row["url"]) for row in golden("url_vectors")]


def _read_url(data: bytes) -> str:
    url = data.decode("utf-8", "surrogateescape")
    for loopback in (False, True):
        parsed = parse_url(url, allow_loopback_http=loopback)
        other = urllib.parse.urlsplit(url)
        assert (other.scheme, (other.hostname or "").lower()) == (parsed.scheme, parsed.host.lower()), (
            "urllib disagrees"
        )
        assert (other.port or {"https": 443, "http": 80}[other.scheme]) == parsed.port, "urllib disagrees"
    return ""


# the child's side


def _streams() -> list[bytes]:
    return [b"".join(encode_stream(table)) for table in (bundle(), {"a": b""}, {"a/b": b"1", "a-b": b"", "c": b"22"})]


def _read_stream(data: bytes) -> str:
    assert b"".join(encode_stream(read_stream(data))) == data
    return ""


@functools.cache
def _answer() -> tuple[str, bytes]:
    screened = screen_files(bundle())
    stream = b"".join(encode_stream(screened.files))
    expected = screened.report.content_hash
    return expected, b"".join(answer_parts(encode_report(screened.report), expected, (stream,), len(stream)))


def _answers() -> list[bytes]:
    expected, good = _answer()
    refusal = encode_report(refusal_report(IntakeError("NAME_INVALID", "no."), content_hash=expected))
    return [good, b"".join(answer_parts(refusal, "", (), 0))]


def _read_answer(data: bytes) -> str:
    answer = read_answer(memoryview(data), _answer()[0])
    assert not answer.report.accepted or hash_files(read_stream(answer.stream)) == _answer()[0]
    return ""


def _read_report(data: bytes) -> str:
    report = decode_report(data)
    assert decode_report(encode_report(report)) == report
    return ""


def _reports() -> list[bytes]:
    return [encode_report(screen_files(bundle()).report)]


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in text.split())


_TOML = _words(
    "[[ops]] [competition] [[dep_patches]] slot source entry variant \"\"\" ''' = {} [] true 1979-05-27 inf nan"
)
_DIFF = (
    b"@@ -1,2 +1,2 @@\n",
    b"--- a/x\n",
    b"+++ b/x\n",
    b"/dev/null",
    b"\\ No newline",
    b"new file mode 100644\n",
    b"\r\n",
)
_CODE = (
    b"import ",
    b"from . import x\n",
    b"lambda: ",
    b"(" * 99,
    b"-" * 99,
    b"\n    ",
    b"class A:\n",
    b"async ",
    b"\x0c",
)
_CUDA = (
    b"#include ",
    b'"h.cuh"',
    b"\\\n",
    b"??/\n",
    b'R"(',
    b"/*",
    b"*/",
    b"%:",
    b"__has_include(",
    b"'",
    b"#embed ",
    b"\x00",
)
_TAR = (
    *(b"ustar\x0000", b"ustar  \x00", b"././@LongLink", b"12 path=w/b\n", b"15 comment=abcd\n", b"../", bytes(BLOCK)),
    *(
        b"\x80",
        b"\xff",
        b"5",
        b"x",
        b"g",
        b"L",
        b"\x00",
        b" ",
        b"00000000012\x00",
        b"   12 \x00",
        b"w/a\x00",
        b"/",
        b"0_0",
    ),
)
_JSON = _words(
    '{ } [ ] : , "capabilities" "exact" "one_of" "min" "max" "steps" "type" null true 1e400 -0 NaN "\\ud800" "'
)
_URL = _words("https:// http:// @ : [::1] [v1.a] % # ? / \\ .. 0 65536 localhost xn-- \x7f")

TARGETS = (
    Target("gzip", _archives, _read_gzip, (b"\x1f\x8b\x08", bytes(8), b"\xff\xff")),
    Target("tar", _tars, _read_tar, _TAR),
    Target("manifest", _manifests, _read_manifest, _TOML),
    Target("metadata", _metadata, _read_metadata, _JSON),
    Target("direct", _direct_rows, _read_direct, _JSON),
    Target("rebuild", _rebuilds, _read_rebuild, _JSON),
    Target("patch", _patches, _read_patch, _DIFF),
    Target("cuda", _cuda, _read_cuda, _CUDA),
    Target("python", _python, _read_python, _CODE),
    Target("payload", _payloads, _read_payload, _JSON, allowed=()),
    Target("remark", _remarks, _read_remark, _JSON, allowed=()),
    Target("url", _urls, _read_url, _URL),
    Target("stream", _streams, _read_stream, (bytes(4), b"\xff" * 4, b"/")),
    Target("answer", _answers, _read_answer, (bytes(4), b"\xff" * 4), allowed=(InternalError,)),
    Target("report", _reports, _read_report, _JSON),
    Target("screen", _bundles, _read_screen, _CODE + _TOML),
)
