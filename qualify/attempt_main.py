"""One attempt in its own process: `python -m qualify.attempt_main --request FILE --out DIR`.

Invariants
1. stdout carries JSON lines of progress events and nothing else; logs go to stderr.
2. Exit 0 means an attempt file was written, whatever it says. Any other exit means nothing was written, an `error`
   event says why, and the same request may be run again.
3. The file is `DIR/<digest>.json.gz`, complete before it gets that name and on disk before it is announced.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

import msgspec
import structlog

from config.errors import CacheonError, ErrorDocument, ExitCode, HostError
from qualify.referee import run_attempt
from qualify.request import read_request
from scoring.attempt import attempt_digest, encode_attempt


def main(arguments: list[str]) -> int:
    """Run one attempt and return the process exit code."""
    parser = argparse.ArgumentParser(prog="qualify.attempt_main", description="Measure one attempt.")
    parser.add_argument("--request", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    log = structlog.get_logger()
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        # Beside the attempt's own folder: arms can read in their mount table where their trees lie, and its name would
        # tell a bundle whose attempt it takes part in.
        attempt = run_attempt(read_request(options.request), emit, workplace=options.out.parent)
        data = encode_attempt(attempt)
        digest = attempt_digest(data)
        path = write_attempt(options.out, digest, data)
    except KeyboardInterrupt:
        emit_error(ErrorDocument("ATTEMPT_STOPPED", "the attempt was stopped from outside", blame="operator"))
        return int(ExitCode.INTERRUPTED)
    except CacheonError as error:
        emit_error(error.to_document())
        return int(error.exit_code) or int(ExitCode.INTERNAL)
    except Exception as error:
        log.exception("referee_failed")
        message = f"the referee failed with {type(error).__name__}"
        emit_error(ErrorDocument("REFEREE_FAILED", message, blame="internal"))
        return int(ExitCode.INTERNAL)
    emit({"event": "done", "path": str(path), "digest": digest})
    return int(ExitCode.OK)


def emit(event: dict[str, object]) -> None:
    """Write one progress event to stdout."""
    sys.stdout.write(json.dumps(event, separators=(",", ":")) + "\n")
    sys.stdout.flush()


def emit_error(document: ErrorDocument) -> None:
    """Write the error event."""
    emit({"event": "error", "error": msgspec.to_builtins(document)})


def write_attempt(folder: Path, digest: str, data: bytes) -> Path:
    """Store attempt bytes durably under their digest and return the path. Raises `HostError` (ATTEMPT_NOT_WRITTEN)."""
    path = folder / f"{digest}.json.gz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as file:
            file.write(gzip.compress(data, compresslevel=6, mtime=0))
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(path)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise HostError(
            "ATTEMPT_NOT_WRITTEN", f"the attempt file cannot be written to {folder}: {error.strerror}"
        ) from error
    return path


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
