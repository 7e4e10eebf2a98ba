"""Attributes of a record as one list in the reference, in the place of a heading for each.

A field is described by the comment behind it, or on the lines above it, and a property by its docstring, so
that neither is written twice. `tests/journeys/test_reference.py` asks for a description of every field.
"""

import ast
import io
import itertools
import textwrap
import tokenize

import griffe

USUAL = {"net": "the network"}  # fields that mean the same in every record


class Attributes(griffe.Extension):
    """Move the attributes of a class from its members into its docstring.

    Fields of a class whose docstring has `Args:` are parameters, which are described there.
    """

    def on_class(self, *, cls: griffe.Class, **_) -> None:
        if cls.docstring is None:
            return
        built_by_users = "\nArgs:\n" in cls.docstring.value
        comments, listed = field_comments(cls.source), []
        for name, member in list(cls.members.items()):
            is_public = not name.startswith("_") and not member.is_alias and member.is_attribute
            if is_public and ("property" in member.labels or not built_by_users):
                text = member.docstring.value if member.docstring else comments.get(name)
                if text:
                    listed.append(item(name, member, text))
                cls.del_member(name)
        if not built_by_users and "__init__" in cls.members:  # records are made by functions
            cls.del_member("__init__")
        if listed:
            cls.docstring.value = with_section(cls.docstring.value, "Attributes:\n" + "\n".join(listed))


def field_comments(source: str) -> dict[str, str]:
    """The comments of the fields of a class, by name."""
    source = textwrap.dedent(source)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    alone = {line for line, token in comments.items() if token.line.lstrip().startswith("#")}
    described = {}
    for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = itertools.takewhile(alone.__contains__, itertools.count(node.lineno - 1, -1))
            lines = [node.end_lineno] if node.end_lineno in comments else [*above][::-1]
            text = " ".join(comments[line].string.lstrip("# ") for line in lines)
            described[node.target.id] = text or USUAL.get(node.target.id, "")
    return described


def item(name: str, member: griffe.Attribute, text: str) -> str:
    kind = f" ({str(member.annotation).strip(chr(34))})" if member.annotation else ""
    first, *rest = f"{name}{kind}: {text[0].upper()}{text[1:]}".splitlines()
    return "\n".join([f"    {first}", *(f"        {line}" for line in rest)])


def with_section(docstring: str, section: str) -> str:
    """The docstring with a section before its example."""
    text, fence, example = docstring.partition("```python")
    return f"{text.rstrip()}\n\n{section}\n\n{fence}{example}"
