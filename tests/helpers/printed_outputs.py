"""Pages show what their code prints: a `text` block right behind a `python` block is that block's output.

    python tests/helpers/printed_outputs.py docs/tutorial.md ...  # writes the blocks anew, and runs notebooks

Numbers agree to one unit of the last digit that is shown, because another processor rounds in another way,
and whole numbers agree exactly. A last line of dots stands for whatever follows.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from sybil import Sybil
from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT = Path(__file__).resolve().parents[2]
READER = Sybil(parsers=[PythonCodeBlockParser()], patterns=["*.md"], path=str(ROOT))
BLOCK = re.compile(r"\s*```text\n(.*?)```", re.S)
NUMBER = re.compile(r"(?<![\w.])([-+]?\d+(?:\.\d*)?(?:e[-+]?\d+)?)(?![\w])")
DOTS = "..."


def evaluated(document: Document) -> Iterator[tuple[re.Match | None, str]]:
    """Run the examples of a page in order: the text block behind each, if any, and what it printed."""
    for example in document.examples():
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            example.evaluate()
        yield BLOCK.match(document.text, example.region.end), printed.getvalue()


def agree(shown: str, printed: str) -> bool:
    """Whether a block shows what was printed, up to spaces and the rounding of numbers."""
    shown, printed = shown.strip(), printed.strip()
    if shown.endswith(DOTS):
        lines = shown.removesuffix(DOTS).strip().splitlines()
        shown, printed = "\n".join(lines), "\n".join(printed.splitlines()[: len(lines)])
    ours, theirs = NUMBER.split(shown), NUMBER.split(printed)
    if len(ours) != len(theirs):
        return False
    words = all(a.split() == b.split() for a, b in zip(ours[::2], theirs[::2], strict=True))
    numbers = zip(ours[1::2], theirs[1::2], strict=True)
    return words and all(abs(float(a) - float(b)) <= 1.001 * unit(a) for a, b in numbers)


def unit(number: str) -> float:
    """One of the last digit of a printed number; nothing for a whole one, which is exact."""
    digits, _, power = number.partition("e")
    decimals = len(digits.partition(".")[2])
    return 10.0 ** (int(power or 0) - decimals) if decimals or power else 0.0


def rewritten(page: Path) -> str:
    """The page with every text block behind code as the code prints it now."""
    document = READER.parse(page)
    parts, position = [], 0
    for block, printed in evaluated(document):
        if block and not agree(block[1], printed):
            parts += [document.text[position : block.start(1)], cut_like(block[1], printed)]
            position = block.end(1)
    return "".join([*parts, document.text[position:]])


def cut_like(shown: str, printed: str) -> str:
    """As much of what was printed as the block showed before its dots."""
    lines = shown.strip().splitlines()
    if not lines or lines[-1] != DOTS:
        return printed
    return "\n".join([*printed.splitlines()[: len(lines) - 1], DOTS, ""])


def executed(path: Path, folder: str) -> str:
    """A notebook with the outputs of its cells as they are now, and nothing else that a run adds."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=None, resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    return nbformat.writes(notebook) + "\n"


def main(pages: list[str]) -> None:
    for page in map(Path.resolve, map(Path, pages)):
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            new = executed(page, folder) if page.suffix == ".ipynb" else rewritten(page)
        page.write_text(new, encoding="utf-8")
        print(os.path.relpath(page))


if __name__ == "__main__":
    main(sys.argv[1:])
