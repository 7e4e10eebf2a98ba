"""Date and commit for the tables of results."""

import datetime
import subprocess
from pathlib import Path


def stamp() -> str:
    """The date, and the commit that was measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"{datetime.date.today()}, commit {commit.stdout.strip() or 'unknown'}"
