"""How a query and a key are compared: additive and scaled dot-product attention by hand, and why there is a √d."""

from __future__ import annotations

import math

import torch

from nmt_cli.attention.masking import visible_from_lengths
from nmt_cli.attention.scoring import AdditiveScore, Attention, DotScore
from nmt_cli.inspection.demos.outcome import Outcome, new_figure, plain, prose, table
from nmt_cli.inspection.plots import heat_maps

WIDTHS = (4, 16, 64, 256, 1024)
SAMPLES = 2000
KEYS = 10


def by_hand() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return scores, weights and context of one query of width 2 against four keys of width 3, with weights set by hand."""
    score = AdditiveScore(2, 3, 2)
    with torch.no_grad():
        score.query_layer.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
        score.key_layer.weight.copy_(torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, -1.0]]))
        score.value_layer.weight.copy_(torch.tensor([[1.0, -1.0]]))
    query, keys = torch.tensor([[[0.5, -0.25]]]), torch.cat((torch.zeros(1, 3), torch.eye(3))).unsqueeze(0)
    attention = Attention(score, torch.nn.Identity())
    prepared = attention.prepare(keys)
    context, weights = attention(query, prepared, torch.tensor([[[1.0], [2.0], [3.0], [4.0]]]), None)
    return score(query, prepared)[0, 0], weights[0, 0], context[0, 0]


def book_case(generator: torch.Generator) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return contexts and weights of the d2l book's two examples: equal keys, so equal weight on all that is visible."""
    keys, lengths = torch.ones(2, KEYS, 2), torch.tensor([2, 6])
    values = torch.arange(40.0).view(1, KEYS, 4).repeat(2, 1, 1)
    additive, dot = AdditiveScore(20, 2, 8), DotScore(2, scaled=True)
    contexts, maps = [], []
    for score, width in ((additive, 20), (dot, 2)):
        attention = Attention(score, torch.nn.Identity())
        queries = torch.randn(2, 1, width, generator=generator)
        context, weights = attention(queries, attention.prepare(keys), values, visible_from_lengths(lengths, KEYS))
        contexts.append(context)
        maps.append(weights)
    return contexts, maps


def variances(generator: torch.Generator) -> list[dict[str, float]]:
    """Return, for each width, the variance of q · k and of q · k / √d, and the mean largest softmax weight over ten keys."""
    found = []
    for width in WIDTHS:
        queries = torch.randn(SAMPLES, 1, width, generator=generator)
        keys = torch.randn(SAMPLES, KEYS, width, generator=generator)
        plain_scores, scaled = (DotScore(width, scaled=wanted)(queries, keys) for wanted in (False, True))
        found.append(
            {
                "width": width,
                "variance": float(plain_scores.var()),
                "variance_scaled": float(scaled.var()),
                "largest_weight": float(plain_scores.softmax(-1).amax(-1).mean()),
                "largest_weight_scaled": float(scaled.softmax(-1).amax(-1).mean()),
            }
        )
    return found


@torch.inference_mode()
def scores(seed: int) -> Outcome:
    """Compute and draw."""
    generator = torch.Generator().manual_seed(seed)
    hand_scores, hand_weights, hand_output = by_hand()
    contexts, maps = book_case(generator)
    spread = variances(generator)

    weights = heat_maps(
        [[one[:, 0].numpy() for one in maps]],
        titles=["additive", "scaled dot product"],
        x_label="keys",
        y_label="sentences (lengths 2 and 6)",
    )
    variance = new_figure(9, 3.6)
    left, right = variance.subplots(1, 2)
    left.loglog(WIDTHS, [row["variance"] for row in spread], marker="o", label="q · k")
    left.loglog(WIDTHS, [row["variance_scaled"] for row in spread], marker="o", label="q · k / √d")
    left.set(xlabel="width d of queries and keys", ylabel="variance of the score")
    right.semilogx(WIDTHS, [row["largest_weight"] for row in spread], marker="o", label="q · k")
    right.semilogx(WIDTHS, [row["largest_weight_scaled"] for row in spread], marker="o", label="q · k / √d")
    right.set(xlabel="width d of queries and keys", ylabel="largest of ten weights (mean)", ylim=(0, 1.02))
    for axes in (left, right):
        axes.legend()
        axes.grid(alpha=0.3)

    rows = [("score", *(f"{v:.6f}" for v in hand_scores)), ("weight", *(f"{v:.6f}" for v in hand_weights))]
    names = ("additive", "scaled dot product")
    text = "\n".join(
        [
            "Additive attention by hand, w_v · tanh(W_q q + W_k k):",
            "q = (0.5, -0.25), keys 0, e1, e2, e3, values 1, 2, 3, 4",
            table(("", "key 0", "key e1", "key e2", "key e3"), rows),
            f"output: {float(hand_output):.6f}",
            "",
            prose("Ten equal keys, values 0..39 in rows of four, of which the first 2 and the first 6 are real:"),
            *(f"{name}: {plain(context[:, 0], 3)}" for name, context in zip(names, contexts, strict=True)),
            "",
            f"Why √d: {SAMPLES:,} queries from N(0, 1) with {KEYS} keys each:",
            table(
                ("d", "variance of q · k", "of q · k / √d", "largest weight", "scaled"),
                [
                    (
                        str(int(row["width"])),
                        f"{row['variance']:.2f}",
                        f"{row['variance_scaled']:.3f}",
                        f"{row['largest_weight']:.3f}",
                        f"{row['largest_weight_scaled']:.3f}",
                    )
                    for row in spread
                ],
            ),
            prose(
                f"Unscaled, the spread of the scores grows as √d (at d = {WIDTHS[-1]} it is {math.sqrt(WIDTHS[-1]):.0f}),",
                "and the softmax gives nearly all weight to one key, where its gradient vanishes.",
                "Look at: scores-weights.png (equal keys share the weight), scores-variance.png.",
            ),
        ]
    )
    numbers = {
        "by_hand": {"scores": plain(hand_scores), "weights": plain(hand_weights), "output": plain(hand_output)},
        "book": {name: plain(context) for name, context in zip(names, contexts, strict=True)},
        "variances": spread,
    }
    return Outcome(text, numbers, {"weights": weights, "variance": variance})
