"""The import table of the design, checked by reading every module's imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "nmt_cli"
TORCH_FREE = (
    "errors",
    "config",
    "config_file",
    "text.parallel",
    "text.vocab",
    "text.tokenizers",
    "text.examples",
    "text.encoding",
    "text.store",
    "text.store_files",
    "text.pieces",
    "text.sampling",
    "text.fetch",
    "runs.folder",
    "runs.exported",
    "decoding.ct2_engine",
    "decoding.engine",
    "decoding.translator",
    "evaluation",
    "cli.options",
    "cli.loading",
    "cli.formats",
    "cli.inputs",
    "cli.outputs",
    "cli.translate",
)
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "config": {"errors"},
    "config_file": {"config", "errors"},
    "devices": {"errors"},
    "text": {"errors", "text"},
    "attention": {"errors", "attention"},
    "models": {"attention", "errors", "models"},
    "runs": set(),
    "runs.folder": {"config", "config_file", "text", "errors"},
    "runs.exported": {"errors", "runs"},
    "runs.build": {"config", "text", "errors", "models", "devices", "attention", "runs"},
    "runs.weights": {"config", "text", "errors", "models", "devices", "runs"},
    "decoding": {"models.interface", "models.dropout", "text", "config", "runs", "devices", "errors", "decoding"},
    "training": {"models.interface", "models.dropout", "text", "config", "runs", "devices", "errors", "training"},
    "inspection": {"models", "attention", "text", "config", "runs", "devices", "errors", "inspection", "decoding.engine"},
    "export": {"models", "attention", "text", "config", "runs", "devices", "errors", "export"},
    "evaluation": {"errors", "evaluation"},
    "cli": {"*"},
    "__init__": {"cli.loading", "decoding.translator"},
    "__main__": {"cli"},
}


def modules() -> dict[str, Path]:
    """Return dotted name below the package -> file."""
    return {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }


def own_imports(path: Path, *, at_import_time: bool = False) -> set[str]:
    """Return what a module imports of ours, as dotted names below the package; `at_import_time`: outside functions only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    nodes = list(ast.walk(tree))
    if at_import_time:
        inside = {id(n) for f in nodes if isinstance(f, ast.FunctionDef) for n in ast.walk(f)}
        guarded = {
            id(n) for i in nodes if isinstance(i, ast.If) and ast.unparse(i.test) == "TYPE_CHECKING" for n in ast.walk(i)
        }
        nodes = [node for node in nodes if id(node) not in inside | guarded]
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module)
    return found


def rule_for(module: str) -> set[str]:
    for name in (module, *(() if module.startswith("runs.") else (module.split(".")[0],))):
        if name in MAY_IMPORT:
            return MAY_IMPORT[name]
    raise AssertionError(f"{module} is in no layer; add it to the table")


def test_all_modules_are_found() -> None:
    assert len(modules()) >= 40
    assert {"training.loop", "models.seq2seq", "cli.app", "errors"} <= set(modules())


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_one_way(module: str) -> None:
    allowed = rule_for(module)
    for name in own_imports(modules()[module]):
        if not name.startswith("nmt_cli."):
            continue
        target = name.removeprefix("nmt_cli.")
        if module != "cli" and not module.startswith(("cli.", "__")):
            assert not target.startswith("cli"), f"{module} imports {target}"
        fits = "*" in allowed or any(target == rule or target.startswith(f"{rule}.") for rule in allowed)
        assert fits, f"{module} may not import {target}"


@pytest.mark.parametrize("module", TORCH_FREE)
def test_no_torch_where_none_is_needed(module: str) -> None:
    code = f"import sys, nmt_cli.{module}; assert 'torch' not in sys.modules, 'torch'"
    subprocess.run([sys.executable, "-c", code], check=True)


HEAVY = ("torch", "matplotlib", "sacrebleu", "sentencepiece")


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], *([name, "--help"] for name in ("train", "translate", "evaluate", "score", "export", "info"))],
)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    assert heavy_modules_after(arguments) == set()


def test_a_config_error_imports_nothing_heavy(tmp_path: Path) -> None:
    config = tmp_path / "bad.yaml"
    config.write_text("data: {source: en}\n", encoding="utf-8")
    assert heavy_modules_after(["train", str(config)]) == set()


def heavy_modules_after(arguments: list[str]) -> set[str]:
    """Run a command in a process of its own and return which heavy modules it imported."""
    code = (
        "import sys, runpy\n"
        f"sys.argv = ['nmt', *{arguments!r}]\n"
        "try:\n    runpy.run_module('nmt_cli', run_name='__main__')\n"
        "except SystemExit:\n    pass\n"
        "sys.stderr.write('MODULES ' + ' '.join(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.rpartition("MODULES ")[2].split()) & set(HEAVY)
