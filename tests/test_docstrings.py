"""A public method is documented where it is declared: in its class, or in what the class is of."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "fedclust"


class Class(NamedTuple):
    file: str
    words: str  # its docstring
    bases: set[str]
    methods: dict[str, bool]  # whether each has a docstring


def classes() -> dict[str, list[Class]]:
    """Every class of the package by its name."""
    found = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                plain = [one.value if isinstance(one, ast.Subscript) else one for one in node.bases]
                bases = {ast.unparse(one).rpartition(".")[2] for one in plain} - {node.name}
                methods = {
                    one.name: ast.get_docstring(one) is not None
                    for one in node.body
                    if isinstance(one, ast.FunctionDef)
                }
                words = ast.get_docstring(node) or ""
                name = file.relative_to(PACKAGE).as_posix()
                found[node.name].append(Class(name, words, bases, methods))
    return found


@pytest.mark.full
def test_a_public_method_is_documented_by_its_class_or_by_what_it_is_of() -> None:
    known = classes()
    declared = {
        method
        for all_of in known.values()
        for one in all_of
        if "Protocol" in one.bases
        for method, is_documented in one.methods.items()
        if is_documented
    }

    def documented(name: str, method: str) -> bool:
        return any(
            one.methods.get(method)
            or re.search(rf"\b{method}\b", one.words)
            or any(documented(base, method) for base in one.bases)
            for one in known.get(name, ())
        )

    missing = [
        f"{one.file}: {name}.{method}"
        for name, all_of in known.items()
        for one in all_of
        for method in one.methods
        if not method.startswith("_") and not name.startswith("_")
        # what a method says of itself is described in one place
        if not (method in declared or documented(name, method) or documented("Traits", method))
    ]
    assert len(declared) > 40
    assert missing == []
