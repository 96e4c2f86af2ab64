"""Settings of one invocation: the only place where a command hands the process environment to the settings."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from config.errors import ConfigurationError
from config.settings import Resolved, Settings, load_settings


def resolve(config: str | None, overrides: Mapping[str, object] | None = None) -> Resolved:
    """Resolve settings from a file, the environment and flags. Raises `ConfigurationError`."""
    return load_settings(config, environ=os.environ, overrides=overrides)


def require_subnet_named(settings: Settings) -> Settings:
    """Return `settings` of a command that works on one subnet.

    Raises `ConfigurationError` (SUBNET_NOT_NAMED) when none is named: number 0 is the root network, where nobody mines.
    """
    if settings.chain.netuid == 0:
        raise ConfigurationError(
            "SUBNET_NOT_NAMED",
            "no subnet is named, and 0 is the root network, which has no miners",
            hint="name the subnet with --netuid N, or `chain.netuid` in the settings file given with -c",
        )
    return settings


def resolve_state(config: str | None, state: str | None) -> Settings:
    """Resolve settings for a command that reads a state folder.

    Raises `ConfigurationError` (STATE_NOT_GIVEN) when neither a flag nor the settings name the folder.
    """
    overrides = {} if state is None else {"state_dir": str(Path(state).absolute())}
    settings = resolve(config, overrides).settings
    if not settings.state_dir:
        raise ConfigurationError(
            "STATE_NOT_GIVEN", "no state folder is named", hint="give --state DIR, or -c FILE with `state_dir` set"
        )
    return settings


def miner_state(folder: str | None) -> Path:
    """Return the folder in which a miner's commands remember what they did: `folder`, else the user's state folder.

    Raises `ConfigurationError` (STATE_NOT_GIVEN) for a user without a home.
    """
    if folder is not None:
        return Path(folder).absolute()
    home = os.environ.get("XDG_STATE_HOME", "")
    try:
        return Path(home if Path(home).is_absolute() else Path.home() / ".local" / "state") / "cacheon"
    except RuntimeError as error:
        raise ConfigurationError(
            "STATE_NOT_GIVEN", "no state folder is named, and this user has no home", hint="give --state DIR"
        ) from error


def variable(name: str) -> str | None:
    """Return an environment variable that a flag names, or None."""
    return os.environ.get(name)
