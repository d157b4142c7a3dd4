"""Gives JoeyNMT's Transformer the weights of ours, so that both translate alike and only their speed is compared.

    python benchmarks/peers/transplant.py PEERS --run RUN

PEERS is the folder that `train_peers.py` made with this `--run`, which must be pre-norm with `tie_embeddings: all`. In some
minutes on two cores JoeyNMT learns so little that it ends few sentences; that would not be a fair race. The bias of our output
layer is left out, since JoeyNMT has none; a translation may differ by that.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

import torch
from torch import Tensor

from nmt_cli.cli.torch_loading import load_model
from nmt_cli.runs.folder import RunFolder
from nmt_cli.text.vocab import SPECIALS

RENAMED = (  # in this order: part of our name -> part of theirs
    (r"encoder\.embedder\.embedding", "src_embed.lut"),
    (r"^encoder(.*)\.self_attention", r"encoder\1.src_src_att"),
    (r"^decoder(.*)\.self_attention", r"decoder\1.trg_trg_att"),
    (r"cross_attention", "src_trg_att"),
    (r"key_layer", "k_layer"),
    (r"value_layer", "v_layer"),
    (r"query_layer", "q_layer"),
    (r"attention_residual\.norm", "layer_norm"),
    (r"feed_forward_residual\.norm", "feed_forward.layer_norm"),
    (r"self_residual\.norm", "x_layer_norm"),
    (r"cross_residual\.norm", "dec_layer_norm"),
    (r"feed_forward\.inner", "feed_forward.pwff_layer.0"),
    (r"feed_forward\.outer", "feed_forward.pwff_layer.3"),
    (r"^(encoder|decoder)\.norm", r"\1.layer_norm"),
)


def renamed(name: str) -> str:
    """Return JoeyNMT's name of a weight."""
    for ours, theirs in RENAMED:
        name = re.sub(ours, theirs, name)
    return name


def main() -> None:
    """Write our weights into the checkpoint."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    options = parser.parse_args()
    run = RunFolder.open(options.run)
    path = options.peers / "joeynmt-transformer" / "latest.ckpt"
    checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    theirs: dict[str, Tensor] = checkpoint["model_state"]
    ours = {renamed(name): weight for name, weight in load_model(run, "best").state_dict().items()}
    listed = (options.peers / "data" / "vocab.txt").read_text(encoding="utf-8").splitlines()
    assert set(listed[: len(SPECIALS)]) == set(SPECIALS)
    numbers = [SPECIALS.index(special) for special in listed[: len(SPECIALS)]]  # whose numbers differ
    numbers += run.tokenizers()[1].vocabulary.ids(listed[len(SPECIALS) :])
    table = ours["src_embed.lut.weight"][numbers]
    for name, weight in theirs.items():
        if name in ("src_embed.lut.weight", "trg_embed.lut.weight", "decoder.output_layer.weight"):
            theirs[name] = table.clone()
        elif name in ours:
            assert weight.shape == ours[name].shape, name
            theirs[name] = ours[name].clone()
        elif name.endswith("layer.bias"):
            theirs[name] = torch.zeros_like(weight)  # attention without biases
        else:
            assert name.endswith("pe.pe"), name
    torch.save(checkpoint, path)
    print(f"{path} has the weights of {options.run}")


if __name__ == "__main__":
    main()
