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
