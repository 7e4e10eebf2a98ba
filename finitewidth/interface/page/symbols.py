"""Every symbol that the page shows: a sentence for its tooltip, and where the documentation defines it."""

import tomllib
from html import escape
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent


class Symbol(NamedTuple):
    """How a symbol is written, what it means, and the section of docs/ that defines it."""

    sign: str
    sentence: str
    section: str  # file of docs/ and anchor


def _read() -> dict[str, Symbol]:
    tables = tomllib.loads((_HERE / "symbols.toml").read_text(encoding="utf-8"))
    return {name: Symbol(**table) for name, table in tables.items()}


SYMBOLS = _read()


def described() -> dict[str, dict]:
    """The tooltips, by the name of the symbol."""
    return {
        name: {"sign": one.sign, "sentence": one.sentence, "more": f"/symbols#{name}"}
        for name, one in SYMBOLS.items()
    }


def as_html() -> str:
    """A page of all symbols, one anchor each, with the section of the documentation that defines them."""
    entries = "\n".join(
        f'<dt id="{escape(name)}">{escape(one.sign)}</dt>\n'
        f"<dd>{escape(one.sentence)} <span>Defined in <code>docs/{escape(one.section)}</code>.</span></dd>"
        for name, one in SYMBOLS.items()
    )
    return (_HERE / "symbols.html").read_text(encoding="utf-8").replace("ENTRIES", entries)
