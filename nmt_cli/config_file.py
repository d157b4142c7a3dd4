"""Config files: YAML in, `--set` applied, every mistake named at once; YAML out.

YAML is read by the 1.2 rules that people expect: `1e-4` is a number, `no` and `on` are text, `010` is not eight. A key given
twice is an error. Relative paths are relative to the config file; in `--set` to the current directory.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from nmt_cli.config import Config, Seq2SeqConfig, TransformerConfig
from nmt_cli.errors import ConfigError, nearest

Tree = dict[str, Any]
MODELS: Mapping[str, type[BaseModel]] = {"seq2seq": Seq2SeqConfig, "transformer": TransformerConfig}
MAX_DEPTH = 20
EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "model_type": "a section with keys of its own",
    "model_attributes_type": "a section with keys of its own",
    "dict_type": "a mapping of names to values",
    "tuple_type": "a list",
    "finite_number": "a finite number",
    "string_pattern_mismatch": "a name without slashes and without a dot in front",
    "string_too_short": "text",
    "too_short": "at least one set of files",
}


@dataclass(frozen=True)
class LoadedConfig:
    """A valid config, and what the user asked for (paths absolute, `--set` applied, no defaults)."""

    config: Config
    requested: Tree


class _Loader(yaml.SafeLoader):
    """YAML 1.2 core scalars instead of PyYAML's 1.1."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own attribute


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.2 or 1.1 would read as something else."""


_FLOAT = "|".join(
    (
        r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*)(?:[eE][-+]?[0-9]+)?$",
        r"^[-+]?[0-9]+[eE][-+]?[0-9]+$",  # 1e-4, which YAML 1.1 takes for a text
        r"^[-+]?\.(?:inf|Inf|INF)$|^\.(?:nan|NaN)$",
    )
)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Quote texts with Unicode line ends, which YAML would fold into spaces."""
    style = '"' if set(text) & set("\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)
for _class in (_Loader, _Dumper):
    for _tag, _pattern, _first in (
        ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
        ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
        ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", list("-+0123456789")),
        ("float", _FLOAT, list("-+.0123456789")),
        ("merge", r"^<<$", ["<"]),
    ):
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), _first)


def _construct_float(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
    return float(str(loader.construct_scalar(node)).lower().replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:float", _construct_float)


@dataclass
class _Reader:
    """Turns YAML nodes into plain values, noting where each key stands and which come twice."""

    origin: str
    lines: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    overridden: dict[str, str] = field(default_factory=dict)

    def read(self, text: str) -> Any:
        try:
            loader = _Loader(text)
            node = loader.get_single_node()
            return None if node is None else self._value(loader, node, ())
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise ConfigError(
                f"{self.origin}:{line}: expected text, but found the control character {error.character:#x}"
            ) from None
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            where = f"{self.origin}:{mark.line + 1}:{mark.column + 1}" if mark else self.origin
            problem = getattr(error, "problem", None) or str(error)
            raise ConfigError(f"{where}: this is not valid YAML: {problem}") from None

    def _value(self, loader: _Loader, node: yaml.Node, path: tuple[str, ...]) -> Any:
        if len(path) > MAX_DEPTH:
            raise ConfigError(f"{self.origin}:{node.start_mark.line + 1}: nested more than {MAX_DEPTH} levels deep")
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*path, str(i))) for i, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            return self._scalar(loader, node, path)
        written = {id(key) for key, _ in node.value}
        loader.flatten_mapping(node)  # merge keys (`<<`) come first, so that what is written here wins
        result: Tree = {}
        seen: dict[str, int] = {}
        for key_node, value_node in node.value:
            key = str(loader.construct_object(key_node))
            line = key_node.start_mark.line + 1
            dotted = ".".join((*path, key))
            if key in seen and id(key_node) in written:
                self.problems.append(f"{self.origin}:{line}: {dotted}: is given twice, first in line {seen[key]}; remove one")
            if id(key_node) in written:
                seen[key] = line
            self.lines[dotted] = line
            result[key] = self._value(loader, value_node, (*path, key))
        return result

    def _scalar(self, loader: _Loader, node: yaml.Node, path: tuple[str, ...]) -> Any:
        try:
            return loader.construct_object(node)
        except (ValueError, KeyError, AttributeError):  # an explicit tag, such as `!!int many`
            where = f"{self.origin}:{node.start_mark.line + 1}: {'.'.join(path)}"
            raise ConfigError(f"{where}: {node.value!r} is not a {node.tag.rpartition(':')[2]}, as its tag says") from None

    def override(self, dotted: str, option: str) -> None:
        """Note that `option`, a `--set`, gave the value of `dotted`: mistakes in it are its own, not the file's."""
        self.overridden[dotted] = f"{option}: "
        self.lines = {key: line for key, line in self.lines.items() if key != dotted and not key.startswith(f"{dotted}.")}

    def where(self, dotted: str) -> str:
        """Return `file:line: ` of a dotted key or its nearest parent that is written, or the `--set` that gave it."""
        if dotted not in self.lines:
            for key, option in self.overridden.items():
                if key == dotted or key.startswith(f"{dotted}."):
                    return option
        while dotted:
            if dotted in self.overridden:
                return self.overridden[dotted]
            if dotted in self.lines:
                return f"{self.origin}:{self.lines[dotted]}: "
            dotted = dotted.rpartition(".")[0]
        return f"{self.origin}: "


def load_config(path: Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read a config file, apply `--set` values, and check everything.

    Args:
        path: The YAML file. Its stem is the run's name unless the file has `name`.
        overrides: Texts `dotted.key=value`; the value is read as YAML.

    Raises:
        ConfigError: The file cannot be read, or anything in it is wrong; the message lists every mistake.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read this config file: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: expected UTF-8 text, but byte {error.start} is not: {error.reason}") from None
    reader = _Reader(str(path))
    tree = reader.read(text)
    if tree is None:
        tree = {}
    if not isinstance(tree, dict):
        raise ConfigError(f"{path}: expected sections (data, model, training, …), but found {_short(tree)}")
    _resolve_paths(tree, path.parent)
    for override in overrides:
        _apply_override(tree, override, reader)
    tree.setdefault("name", path.stem)
    return LoadedConfig(_validate(tree, reader), tree)


def parse_config(text: str, origin: str) -> Config:
    """Return the config that `text`, a resolved dump of an earlier run, holds; `origin` names it in messages."""
    reader = _Reader(origin)
    tree = reader.read(text)
    if not isinstance(tree, dict):
        raise ConfigError(f"{origin}: expected a config, but found {_short(tree)}")
    return _validate(tree, reader)


def parse_tree(text: str, origin: str) -> Tree:
    """Return the plain mapping that YAML `text` holds."""
    tree = _Reader(origin).read(text)
    return tree if isinstance(tree, dict) else {}


def dump_yaml(tree: Tree) -> str:
    """Return `tree` as YAML text that `parse_tree` reads back unchanged."""
    return str(yaml.dump(tree, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120))


def dump_config(config: Config) -> str:
    """Return the config with every default filled in, as YAML text."""
    return dump_yaml(config.model_dump(mode="json"))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys whose values differ between two requested configs."""
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            yield from differences(before, after, f"{prefix}{key}.")
        elif before != after:
            yield f"{prefix}{key}"


def _apply_override(tree: Tree, override: str, reader: _Reader) -> None:
    """Put the value of one `--set` into `tree`, in place, and note it in the file's `reader`."""
    dotted, equals, text = override.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise ConfigError(f"--set {override}: expected section.key=value, for example --set training.seed=2")
    own = _Reader(f"--set {dotted}")
    value: Any = own.read(text)
    reader.problems += own.problems
    reader.override(".".join(keys), f"--set {override}")
    for key in reversed(keys):
        value = {key: value}
    _resolve_paths(value, Path.cwd())
    here = tree
    for key in keys[:-1]:
        value = value[key]
        below = here.get(key)
        if below is None or (isinstance(below, str | list) and (keys[0] == "data" or key == "model_file")):
            below = {}  # `--set data.train.source=…` takes the place of a path
        if not isinstance(below, dict):
            raise ConfigError(f"--set {override}: {key} is {_short(below)}, which has no keys below it")
        here[key] = dict(below)
        here = here[key]
    here[keys[-1]] = value[keys[-1]]


def _resolve_paths(tree: Tree, base: Path) -> None:
    """Make the paths in `tree` absolute, in place."""
    tokenizer = tree.get("tokenizer")
    if isinstance(tokenizer, dict) and "model_file" in tokenizer:
        tokenizer["model_file"] = _absolute(tokenizer["model_file"], base)
    data = tree.get("data")
    if isinstance(data, dict):
        for key in ("train", "valid"):
            if key in data:
                data[key] = _absolute(data[key], base)
        if isinstance(data.get("tests"), dict):
            data["tests"] = {name: _absolute(value, base) for name, value in data["tests"].items()}


def _absolute(value: Any, base: Path) -> Any:
    if isinstance(value, str) and value:
        return os.path.abspath(base / os.path.expanduser(value))
    if isinstance(value, list):
        return [_absolute(item, base) for item in value]
    if isinstance(value, dict):
        return {key: _absolute(item, base) for key, item in value.items()}
    return value


def _validate(tree: Tree, reader: _Reader) -> Config:
    problems = list(reader.problems)
    try:
        config = Config.model_validate(tree)
    except ValidationError as error:
        problems += [_explain(dict(item), reader) for item in error.errors(include_url=False)]
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return config


def _explain(error: dict[str, Any], reader: _Reader) -> str:
    """Return one line for one mistake: where, which key, what was expected, what came, what to do."""
    location = [str(part) for part in error["loc"]]
    if location[:1] == ["model"] and location[1:2] and location[1] in MODELS:
        del location[1]
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind.startswith("union_tag") and isinstance(value, dict):
        location, value = [*location, "type"], value.get("type")
    dotted = ".".join(location) or "the config"
    where = reader.where(".".join(location))
    if kind == "extra_forbidden":
        return f"{where}{dotted}: unknown key{_known_elsewhere(location, error)}"
    if kind == "missing" or (kind.startswith("union_tag") and value is None):
        what = " (seq2seq or transformer)" if dotted == "model.type" else ""
        return f"{where}{dotted}: is required{what}, but is not given"
    if kind.startswith("union_tag"):
        return f"{where}{dotted}: expected 'seq2seq' or 'transformer', but is {_short(value)}{nearest(str(value), MODELS)}"
    if kind == "value_error":
        return f"{where}{dotted}: {context['error']}"
    if kind == "literal_error":
        choices = re.findall(r"'([^']*)'", context["expected"])
        return f"{where}{dotted}: expected {context['expected']}, but is {_short(value)}{nearest(str(value), choices)}"
    expected = EXPECTED.get(kind)
    if expected is None:
        expected = error["msg"].removeprefix("Input should be ").removeprefix("Value should have ")
    return f"{where}{dotted}: expected {expected}, but is {_short(value)}"


def _sections() -> dict[str, set[str]]:
    sections = {
        name: set(info.annotation.model_fields)
        for name, info in Config.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
    }
    sections["model"] = {key for model in MODELS.values() for key in model.model_fields}
    return sections


def _known_elsewhere(location: list[str], error: dict[str, Any]) -> str:
    """Return where an unknown key may belong: another section, the other model, or the nearest name."""
    key, sections = location[-1], _sections()
    if len(location) == 1:
        home = [name for name, keys in sections.items() if key in keys]
        return f"; it belongs in section {home[0]!r}" if home else nearest(key, Config.model_fields)
    if len(location) > 2:
        return nearest(key, {"metric", "patience", "min_delta", "source", "target"})
    section = location[0]
    own = sections.get(section, set())
    if section == "model":
        tag = str(error["loc"][1])
        other = [name for name in MODELS if name != tag and key in MODELS[name].model_fields]
        if other:
            return f" of a {tag} model; it belongs to model.type: {other[0]}"
        own = set(MODELS[tag].model_fields) if tag in MODELS else own
    home = [name for name, keys in sections.items() if key in keys]
    if home:
        return f"; it belongs in section {home[0]!r}"
    return nearest(key, own) or f"; known keys: {', '.join(sorted(own))}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"
