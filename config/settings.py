"""Settings: resolved once, then one frozen object that is passed down.

Rules
1. Layers, later ones win: built-in defaults < profile < file < environment < command-line flags.
2. An unknown section or key is an error that names the nearest known one.
3. `os.environ` is read nowhere else; a variable is `CACHEON_<SECTION>__<KEY>` (or `CACHEON_<KEY>` at the top).
4. `Resolved.origins` remembers for every key which layer set it, so that `config show --origin` can say so.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import tomli

from config.errors import ConfigurationError, SourceLocation
from config.evaluation_cost import EvaluationCostSettings

PROFILES = ("devnet", "test", "finney")
_PREFIX = "CACHEON_"
_LISTEN = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[0-9A-Za-z.-]+):[0-9]{1,5}")


class ChainSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the chain is reached. Times are seconds."""

    endpoints: tuple[str, ...] = ()
    netuid: int = 0
    wallet_path: str = "~/.bittensor/wallets"
    wallet: str = "default"  # "" = none: a node then observes and judges, and publishes nothing
    hotkey: str = "default"
    signer_socket: str = ""  # of `cacheon signer run`, which then holds the key; empty = the hotkey's file is used
    start_block: int | None = None  # first block whose reveals count; None = the finalized head at first start
    request_timeout_seconds: float = 20.0
    submit_timeout_seconds: float = 120.0
    rpc_per_second: int = 50
    poll_seconds: float = 1.0


class IntakeSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How archives are fetched and which bundles are read. Times are seconds."""

    transport_attempts: int = 5  # fetches of one submission before its host's fault becomes its verdict
    retry_base_seconds: float = 15.0
    retry_cap_seconds: float = 900.0
    fetch_deadline_seconds: float = 60.0
    per_host_per_second: int = 4
    abi_cutover_block: int | None = None  # reveals before it may spell the legacy ABI; None = no bundle may

    def admits_legacy_abi(self, reveal_block: int) -> bool:
        """Whether a submission that was finalized in `reveal_block` may spell the ABI the legacy way.

        A function of the chain and of this setting alone, so that every screening of a submission agrees.
        """
        return self.abi_cutover_block is not None and reveal_block < self.abi_cutover_block


class QualifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How candidates are measured."""

    arena: str = "cpu-small"
    attempt_retries: int = 3  # attempts lost to our own faults before the job is parked
    retry_base_seconds: float = 5.0
    arm_cores: tuple[int, ...] = ()  # cores for arms; empty = the last core of this process's allowed set


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Isolation layers the operator gave up, by name; visible in status and every receipt."""

    waive: tuple[str, ...] = ()


class PublicationSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How weights are published."""

    burn_hotkey: str = ""  # receives everything while nothing is crowned; empty = the subnet owner's hotkey
    undistributed: str = "renormalise"  # what happens to decayed credit: "renormalise" or "burn"
    absent: str = "validator"  # who gets the share of a claimant that left the subnet: "validator" or "burn"
    half_life_blocks: int = 216_000
    mechanism: int = 0  # of the subnet's mechanisms, the one that is weighted
    refresh_epochs: int = 1  # an unchanged vector that stands on the chain is published again after so many epochs
    ledger_url: str = ""  # public URL under which the folder `ledger/` is served; empty = no ledger on the chain


class HttpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The node's read-only HTTP pages; they hold public data only."""

    listen: str = ""  # "host:port", such as "127.0.0.1:9980"; empty = none are served
    hosts: tuple[str, ...] = ()  # names under which they are asked for, besides loopback's own; empty = see docs


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Structured logs on standard error."""

    format: str = "console"
    level: str = "info"


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything the node needs to know, resolved."""

    profile: str = "finney"
    state_dir: str = ""
    chain: ChainSettings = ChainSettings()
    intake: IntakeSettings = IntakeSettings()
    qualify: QualifySettings = QualifySettings()
    sandbox: SandboxSettings = SandboxSettings()
    publication: PublicationSettings = PublicationSettings()
    http: HttpSettings = HttpSettings()
    evaluation_cost: EvaluationCostSettings = EvaluationCostSettings()
    log: LogSettings = LogSettings()

    @property
    def is_devnet(self) -> bool:
        """Whether loopback hosts and the fixed test beacon are in use."""
        return self.profile == "devnet"


class Resolved(msgspec.Struct, frozen=True):
    """Settings with the layer that set each key (`section.key` -> `default`, `profile`, `file`, ...)."""

    settings: Settings
    origins: dict[str, str]


def load_settings(
    path: str | Path | None,
    *,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Resolved:
    """Resolve settings from `path`, `environ` and `overrides` (dotted keys, as given by flags).

    Raises `ConfigurationError`: SETTINGS_NOT_FOUND, SETTINGS_MALFORMED, SETTINGS_UNKNOWN_KEY, SETTINGS_INVALID.
    """
    file_values = _read_file(Path(path)) if path is not None else {}
    env_values = _from_environment(environ or {})
    flag_values = dict(overrides or {})
    profile = str(_first("profile", flag_values, env_values, file_values) or Settings().profile)
    if profile not in PROFILES:
        raise ConfigurationError(
            "SETTINGS_INVALID", f"profile {profile!r} does not exist", hint=f"use one of: {', '.join(PROFILES)}"
        )
    merged: dict[str, object] = {}
    origins = dict.fromkeys(known_keys(), "default")
    layers = (
        ("profile", _read_profile(profile)), ("file", file_values), ("environment", env_values), ("flag", flag_values)
    )
    for origin, values in layers:
        for key, value in values.items():
            merged[key] = value
            origins[key] = origin
    return Resolved(_build(merged, str(path or "")), origins)


def known_keys() -> dict[str, Any]:
    """Return every dotted key with its declared type."""
    keys: dict[str, Any] = {}
    for name, kind in typing.get_type_hints(Settings).items():
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            keys.update({f"{name}.{key}": inner for key, inner in typing.get_type_hints(kind).items()})
        else:
            keys[name] = kind
    return keys


def _build(merged: Mapping[str, object], source: str) -> Settings:
    nested: dict[str, Any] = {}
    for key, value in merged.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    try:
        settings = msgspec.convert(nested, Settings, strict=True)
    except msgspec.ValidationError as error:
        raise ConfigurationError(
            "SETTINGS_INVALID", f"a setting has the wrong type: {error}", location=SourceLocation(source)
        ) from error
    _check_values(settings, source)
    return settings


def _check_values(settings: Settings, source: str) -> None:
    for holds, complaint in (
        (settings.log.format in ("console", "json"), "log.format must be 'console' or 'json'"),
        (settings.log.level in ("debug", "info", "warning", "error"), "log.level is unknown"),
        (settings.publication.undistributed in ("renormalise", "burn"), "publication.undistributed is unknown"),
        (settings.publication.absent in ("validator", "burn"), "publication.absent is unknown"),
        (0 <= settings.publication.mechanism < 16, "publication.mechanism must lie between 0 and 15"),
        (settings.publication.refresh_epochs > 0, "publication.refresh_epochs must be positive"),
        (settings.publication.half_life_blocks > 0, "publication.half_life_blocks must be positive"),
        (settings.intake.transport_attempts > 0, "intake.transport_attempts must be positive"),
        ((settings.intake.abi_cutover_block or 0) >= 0, "intake.abi_cutover_block must not be negative"),
        (
            not settings.http.listen or _LISTEN.fullmatch(settings.http.listen) is not None,
            "http.listen must be host:port, such as '127.0.0.1:9980' or '[::1]:9980'",
        ),
        (settings.qualify.attempt_retries >= 0, "qualify.attempt_retries must not be negative"),
        (0 <= settings.chain.netuid < 4096, "chain.netuid must lie between 0 and 4095"),
        (settings.chain.poll_seconds > 0, "chain.poll_seconds must be positive"),
        (settings.chain.rpc_per_second > 0, "chain.rpc_per_second must be positive"),
        (not settings.evaluation_cost.complaint(), settings.evaluation_cost.complaint()),
    ):
        if not holds:
            raise ConfigurationError("SETTINGS_INVALID", complaint, location=SourceLocation(source))


def _read_file(path: Path) -> dict[str, object]:
    try:
        text = path.read_bytes().decode("utf-8")
        document = tomli.loads(text)
    except OSError as error:
        raise ConfigurationError(
            "SETTINGS_NOT_FOUND", f"settings file {path} cannot be read: {error.strerror}",
            hint="give the path of a readable TOML file with -c",
        ) from error
    except (UnicodeDecodeError, tomli.TOMLDecodeError) as error:
        line = int(getattr(error, "lineno", 0) or 0)
        raise ConfigurationError(
            "SETTINGS_MALFORMED", f"settings file is not valid TOML: {error}", location=SourceLocation(str(path), line)
        ) from error
    return _flatten(document, str(path), text)


def _read_profile(profile: str) -> dict[str, object]:
    source = resources.files("config") / "profiles" / f"{profile}.toml"
    text = source.read_text("utf-8")
    return _flatten(tomli.loads(text), f"profiles/{profile}.toml", text)


def _flatten(document: Mapping[str, object], source: str, text: str) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in document.items():
        items = {f"{name}.{key}": inner for key, inner in value.items()} if isinstance(value, dict) else {name: value}
        for key, inner in items.items():
            _require_known(key, source, _line_of(key, text))
            flat[key] = inner
    return flat


def _line_of(key: str, text: str) -> int:
    """Return the line on which the last component of `key` is assigned or opened, or 0."""
    section, _, name = key.rpartition(".")
    current = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("["):
            current = stripped.strip("[] ")
        elif stripped.partition("=")[0].strip() in (name, key) and current in (section, ""):
            return number
    return 0


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for name, text in environ.items():
        if not name.startswith(_PREFIX):
            continue
        key = name.removeprefix(_PREFIX).lower().replace("__", ".")
        _require_known(key, f"environment variable {name}", 0)
        values[key] = _parse_text(text, known_keys()[key])
    return values


def _parse_text(text: str, kind: Any) -> object:
    if kind is str:
        return text
    if typing.get_origin(kind) is tuple:
        item = typing.get_args(kind)[0]
        if typing.get_origin(item) is tuple:  # `1000:5,2000:7` spells two pairs
            return tuple(_parse_text(part.replace(":", ","), item) for part in text.split(",") if part.strip())
        return tuple(_parse_text(part.strip(), item) for part in text.split(",") if part.strip())
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _require_known(key: str, source: str, line: int) -> None:
    keys = known_keys()
    if key in keys:
        return
    near = difflib.get_close_matches(key, keys, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else "`cacheon config show` lists every key"
    raise ConfigurationError(
        "SETTINGS_UNKNOWN_KEY", f"setting {key!r} does not exist", hint=hint, location=SourceLocation(source, line)
    )


def _first(key: str, *layers: Mapping[str, object]) -> object:
    return next((layer[key] for layer in layers if key in layer), None)
