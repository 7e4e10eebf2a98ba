"""What a table of results says about where its numbers come from."""

import datetime
import subprocess
from pathlib import Path


def stamp() -> str:
    """The date, and the commit that was measured."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return f"{datetime.date.today()}, commit {found.stdout.strip() or 'unknown'}"
