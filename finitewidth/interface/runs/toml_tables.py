"""TOML files and their tables: parsing, and checks of keys and values whose errors name the key."""

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def parse(path: Path) -> dict:
    """The tables of a TOML file."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ValueError(f"RUN {str(path)!r} does not exist; give the path of a TOML file.") from None
    except IsADirectoryError:
        raise ValueError(f"RUN {str(path)!r} is a directory; give the path of a TOML file.") from None
    except OSError as error:
        raise ValueError(f"RUN {str(path)!r} cannot be read: {error.strerror or error}.") from None
    except RecursionError:
        raise ValueError(f"RUN {str(path)!r} nests lists or tables too deeply; flatten it.") from None
    except ValueError as error:  # also for undecodable text, and for numbers with too many digits
        raise ValueError(f"RUN {str(path)!r} is not valid TOML: {error}; correct it.") from None
    return _in_known_case(tables, str(path))


_CAPITALS = {name.casefold(): name for name in ("C_b", "C_W", "C_OV", "lambda_W", "sigma_QK")}


def _in_known_case(value: Any, where: str) -> Any:
    """Tables with keys as they are known, whatever their case: `c_w` is `C_W`, `Widths` is `widths`."""
    if isinstance(value, list):
        return [_in_known_case(part, where) for part in value]
    if not isinstance(value, dict):
        return value
    table = {_CAPITALS.get(key.casefold(), key.casefold()): part for key, part in value.items()}
    if len(table) < len(value):
        raise ValueError(
            f"RUN {where!r} has keys that differ in case only, among {', '.join(value)}; drop one."
        )
    return {key: _in_known_case(part, where) for key, part in table.items()}


def check_keys(table: Mapping, required: tuple[str, ...], optional: tuple[str, ...], where: str) -> None:
    """Refuse unknown keys, suggesting the nearest known one, and required keys that are missing."""
    known = (*required, *optional)
    for key in table:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}."
            raise ValueError(f"{where}: {key!r} is not a key of a run; {hint}")
    for key in required:
        if key not in table:
            raise ValueError(f"{where}: {key!r} is missing; add it.")


def choice(name: str, value: Any, known: Mapping, where: str) -> str:
    """A value that is one of the known names."""
    if isinstance(value, str) and value in known:
        return value
    raise ValueError(f"{where}: {name} {value!r} is not known; known are {', '.join(known)}.")


def check_kind(name: str, value: Any, kind: str, where: str) -> None:
    """Refuse a value that is not what `kind` says."""
    right = {
        "a number": _is_number,
        "true or false": lambda given: isinstance(given, bool),
        "true, false or a number": lambda given: isinstance(given, bool) or _is_number(given),
        "a list of numbers": lambda given: isinstance(given, list) and all(map(_is_number, given)),
    }
    if not right[kind](value):
        raise ValueError(f"{where}: {name} must be {kind}, got {value!r}; change it.")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
