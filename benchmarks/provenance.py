"""Date and commit for the tables of results, and files of results whose sections are written one by one."""

import datetime
import subprocess
from pathlib import Path


def stamp() -> str:
    """The date, and the commit that was measured."""
    return f"{datetime.date.today()}, commit {commit()}"


def commit() -> str:
    """The commit that is measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def keep(path: Path, title: str, text: str) -> None:
    """Write the section `title` of a file of results in its place, or at the end; the others stay."""
    opening, *parts = path.read_text().split("\n## ") if path.exists() else [""]
    sections = {part.split("\n", 1)[0]: part.split("\n", 1)[1].strip() for part in parts}
    sections[title] = text.strip()
    body = [f"## {name}\n\n{section}" for name, section in sections.items()]
    path.write_text("\n\n".join([opening.strip(), *body]).lstrip() + "\n")
