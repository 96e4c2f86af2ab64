"""What the command tree declares, in the words that both the help and `docs/cli.md` use.

Invariants
1. Reads declarations only: nothing is parsed or converted, so that asking for help loads no validation library.
2. A flag never looks as if it took a value, and an empty default is no default.
"""

from __future__ import annotations

import inspect
from typing import Any


def parameters(command: Any) -> list[Any]:
    """Return the arguments and options of `command` that a person can see, as declared."""
    return [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]


def is_argument(parameter: Any) -> bool:
    """Say whether `parameter` is told by its position."""
    return bool(parameter.param_type_name == "argument")


def argument_name(parameter: Any) -> str:
    """Return an argument's name, in brackets when it can be left out."""
    name = str(parameter.metavar or parameter.name.upper())
    return name if parameter.required or name.startswith("[") else f"[{name}]"


def value_name(parameter: Any) -> str:
    """Return what an option takes, such as `FILE`; "" for a flag."""
    return "" if parameter.is_flag else str(parameter.metavar or "VALUE")


def meaning(parameter: Any) -> str:
    """Return what a parameter is for, whether it has to be there, and what it is otherwise."""
    text = str(parameter.help or "")
    if is_argument(parameter):
        return text
    if parameter.required:
        text += " Required."
    elif not parameter.is_flag and parameter.default not in (None, ""):
        text += f" Default: {parameter.default}."
    return text


def usage(path: str, command: Any) -> str:
    """Return the shape of a command line that calls `command`."""
    if hasattr(command, "commands"):
        return f"{path} COMMAND"
    arguments = (argument_name(one) for one in parameters(command) if is_argument(one))
    return " ".join([path, *arguments, "[OPTIONS]"])


def paragraphs(text: str | None) -> list[str]:
    """Return the paragraphs of a help text, each on one line."""
    return [" ".join(part.split()) for part in inspect.cleandoc(text or "").split("\n\n") if part.strip()]
