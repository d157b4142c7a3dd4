"""Writes docs/config.md, the reference of every config key, from the schema itself: `make docs`."""

from __future__ import annotations

import sys
import types
import typing
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from nmt_cli.config import Config, EarlyStoppingConfig, Files, Seq2SeqConfig, TransformerConfig

HEAD = """# Every key of a config

Written by `make docs` from the schema, so it is what `nmt` checks. Keys without a default must be given. Updates are steps of
the optimizer; lengths are tokens with the end mark. `--set section.key=value` on the command line changes any of them.
"""


def main() -> None:
    """Write the page beside this script."""
    (Path(__file__).parent / "config.md").write_text(reference(), encoding="utf-8")
    sys.stderr.write("docs/config.md written\n")


def reference() -> str:
    """Return the page as Markdown text."""
    parts = [HEAD, "At the top: `name`, the run's name (default: the file's stem), and the sections below.\n"]
    for name, info in Config.model_fields.items():
        kind = info.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            parts.append(section(name, kind))
    models: list[tuple[str, type[BaseModel]]] = [
        ("model, with type: seq2seq", Seq2SeqConfig),
        ("model, with type: transformer", TransformerConfig),
    ]
    parts[3:3] = [section(title, kind) for title, kind in models]
    parts.append(section("training.early_stopping", EarlyStoppingConfig))
    return "\n".join(parts)


def section(title: str, kind: type[BaseModel]) -> str:
    """Return the table of one section."""
    doc = " ".join((kind.__doc__ or "").split())
    rows = [f"## {title}", "", doc, "", "| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    for key, info in kind.model_fields.items():
        value, default = type_name(info.annotation, info.metadata), default_text(info.get_default(call_default_factory=True))
        meaning = " ".join((info.description or "").split())
        rows.append(f"| `{key}` | {value} | {default} | {meaning} |".replace("  ", " "))
    return "\n".join([*rows, ""])


def type_name(annotation: Any, metadata: list[Any]) -> str:
    """Return a type as a person would say it."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        inner, *more = typing.get_args(annotation)
        return type_name(inner, [*more, *metadata])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(annotation))
    if origin in {typing.Union, types.UnionType}:
        return " or ".join(type_name(part, metadata) for part in typing.get_args(annotation) if part is not type(None))
    if origin is dict:
        return "name: files, …"
    if origin is tuple:
        inner = typing.get_args(annotation)[0]
        return "files" if inner is Files else f"list of {type_name(inner, [])}"
    if annotation in {int, float}:
        return f"{'whole number' if annotation is int else 'number'}{bounds(metadata)}"
    names = {bool: "true or false", str: "text", Files: "file or files", EarlyStoppingConfig: "see below"}
    return names.get(annotation, str(annotation))


def bounds(metadata: list[Any]) -> str:
    """Return the limits of a number, such as ` >= 1`."""
    found = ""
    for part in metadata:
        for rule in getattr(part, "metadata", [part]):
            for name, sign in (("ge", ">="), ("gt", ">"), ("lt", "<"), ("le", "<=")):
                if hasattr(rule, name):
                    found += f" {sign} {getattr(rule, name):g}"
    return found


def default_text(value: Any) -> str:
    """Return a default as it would stand in YAML."""
    if value is PydanticUndefined:
        return ""
    if isinstance(value, BaseModel) or value == {}:
        return "–"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value or '(empty)'}`"


if __name__ == "__main__":
    main()
