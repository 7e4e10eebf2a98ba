"""Notebooks as pages: text, code and outputs as they are stored, to be read without Jupyter."""

import json
import re
from pathlib import Path

from mkdocs.structure.files import File, Files

_IMAGE = "![figure](data:image/png;base64,{})"


def on_files(files: Files, config, **_) -> Files:
    """One page beside each notebook; the notebook itself stays for download."""
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        text = as_markdown(Path(file.abs_src_path))
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Links to a notebook lead to its page."""
    return re.sub(r"(\]\((?:\.\./)?notebooks/\w+)\.ipynb\)", r"\1.md)", markdown)


def as_markdown(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    parts = [part for cell in cells for part in _parts(cell)]
    return "\n\n".join([*parts, f"This page is a notebook: [{path.name}]({path.name})."]) + "\n"


def _parts(cell: dict) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [f"```python\n{source}\n```", *(shown for output in cell["outputs"] if (shown := _shown(output)))]


def _shown(output: dict) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text'])}```"
    image = output.get("data", {}).get("image/png", "")
    return _IMAGE.format("".join(image).replace("\n", "")) if image else ""
