"""Checks a dump of `nmt attn-dump --format json`: shapes, sums of rows, what may not be seen, and that nothing is missing.

    python benchmarks/attention.py DIR/attention.jsonl

Prints what was found, and leaves with 1 where a map does not fit its tokens or a row does not sum to 1 within 1e-5.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

TOLERANCE = 1e-5


def problems_of(record: dict[str, Any], attention_map: dict[str, Any]) -> list[str]:
    """Return what is wrong with one map."""
    weights = np.array(attention_map["weights"])
    kind, where = attention_map["kind"], f"line {record['line']}, {attention_map['kind']}.{attention_map['layer']}"
    source, outputs = record["source_tokens"], record["target_tokens"]
    inputs = ["<bos>", *outputs][: len(outputs)]
    rows, columns = {"encoder": (source, source), "decoder": (outputs, inputs), "cross": (outputs, source)}[kind]
    found = []
    if (attention_map["row_tokens"], attention_map["column_tokens"]) != (rows, columns):
        found.append(f"{where}: its tokens are not those of the record")
    if weights.shape != (len(rows), len(columns)):
        found.append(f"{where}: shape {weights.shape}, expected {(len(rows), len(columns))}")
    elif np.abs(weights.sum(axis=1) - 1).max() > TOLERANCE or weights.min() < 0:
        found.append(f"{where}: a row sums to {weights.sum(axis=1)}")
    elif kind == "decoder" and np.triu(weights, 1).any():
        found.append(f"{where}: an output looks at a later input")
    if "<pad>" in rows or "<pad>" in columns:
        found.append(f"{where}: padding is shown")
    return found


def main() -> int:
    """Check and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    records = [json.loads(line) for line in parser.parse_args().file.read_text(encoding="utf-8").splitlines()]
    problems, seen, largest = [], set(), 0.0
    for record in records:
        for attention_map in record["maps"]:
            problems += problems_of(record, attention_map)
            seen.add((attention_map["kind"], attention_map["layer"], attention_map["head"]))
            largest = max(largest, float(np.abs(np.array(attention_map["weights"]).sum(axis=1) - 1).max()))
        if record["source_tokens"] and len(record["maps"]) != len(seen):
            problems.append(f"line {record['line']}: {len(record['maps'])} maps, expected {len(seen)}")
    kinds = {kind: len({place for place in seen if place[0] == kind}) for kind, _, _ in sorted(seen)}
    maps = sum(len(record["maps"]) for record in records)
    sys.stdout.write(f"{len(records)} lines, {maps} maps; layers x heads of each kind: {kinds}\n")
    sys.stdout.write(f"rows sum to 1 within {largest:.1e}; {len(problems)} problems\n")
    sys.stdout.writelines(f"  {problem}\n" for problem in problems[:10])
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
