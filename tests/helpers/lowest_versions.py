"""The lowest versions that pyproject.toml allows, as constraints for pip: `make test-lowest`.

The tools of the tests, the documentation and the notebooks are left out: users never install them.
"""

import re
import tomllib
from pathlib import Path

TOOLS = ("docs", "notebooks", "test")


def lowest_versions(project: dict) -> list[str]:
    """One line `name==version` for each requirement `name>=version` of the core and of extras for users."""
    extras = [items for name, items in project["optional-dependencies"].items() if name not in TOOLS]
    requirements = {*project["dependencies"], *(item for items in extras for item in items)}
    matches = [re.fullmatch(r"([\w.-]+)>=([\d.]+)(,<[\d.]+)?", item) for item in sorted(requirements)]
    return [f"{match[1]}=={match[2]}" for match in matches if match]


if __name__ == "__main__":
    pyproject = Path(__file__).resolve().parents[2] / "pyproject.toml"
    print(*lowest_versions(tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]), sep="\n")
