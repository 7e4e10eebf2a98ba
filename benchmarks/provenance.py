"""Date and commit for the tables of results."""

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
