"""The files of every room with the first line of each, for the page that lists them.

    python docs/hooks/files.py theory    # the same for a terminal

A file says what it holds in the first paragraph of its docstring, and nowhere else.
"""

import ast
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "finitewidth"
MARK = "<!-- the files of all rooms -->"


def first_paragraph(file: Path) -> str:
    """What a file holds, in one line."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return " ".join(docstring.split("\n\n")[0].split())


def rooms(under: str = "") -> list[Path]:
    """Folders with modules, outer before inner."""
    return sorted({file.parent for file in (PACKAGE / under).rglob("*.py")})


def files(room: Path) -> dict[str, str]:
    """The modules of a room and what they hold."""
    return {f.name: first_paragraph(f) for f in sorted(room.glob("*.py")) if f.stem[0] != "_"}


def table(room: Path) -> str:
    """A heading, what the room is for, and a row for each file."""
    name = room.relative_to(PACKAGE.parent).as_posix()
    rows = [f"| `{file}` | {words.replace('|', '&#124;')} |" for file, words in files(room).items()]
    head = [f"## {name}", "", first_paragraph(room / "__init__.py"), ""]
    return "\n".join([*head, "| file | holds |", "|---|---|", *rows]) + "\n"


def on_page_markdown(markdown: str, **_) -> str:
    """Called by MkDocs: the page with the tables where it has the mark."""
    return (
        markdown.replace(MARK, "\n".join(table(room) for room in rooms())) if MARK in markdown else markdown
    )


if __name__ == "__main__":
    for place in rooms(*sys.argv[1:]):
        print(place.relative_to(PACKAGE.parent).as_posix(), "-", first_paragraph(place / "__init__.py"))
        for file, words in files(place).items():
            print(f"  {file}: {words}")
