"""Masked softmax: only what is real gets weight."""

from __future__ import annotations

import torch

from nmt_cli.attention.masking import masked_softmax, visible_from_lengths
from nmt_cli.inspection.demos.outcome import Outcome, plain, prose, table
from nmt_cli.inspection.plots import heat_maps


def masked_softmax_demo(seed: int) -> Outcome:
    """Show lengths per sentence, lengths per query, and a row with nothing visible."""
    scores = torch.arange(4.0)
    rows = []
    for length in range(5):
        weights = masked_softmax(scores, visible_from_lengths(torch.tensor(length), 4))
        rows.append((str(length), *(f"{weight:.6f}" for weight in weights)))
    random = torch.rand(2, 2, 4, generator=torch.Generator().manual_seed(seed))
    per_sentence = masked_softmax(random, visible_from_lengths(torch.tensor([2, 3]), 4).unsqueeze(1))
    per_query = masked_softmax(random, visible_from_lengths(torch.tensor([[1, 3], [2, 4]]), 4))
    figure = heat_maps(
        [[weights.numpy() for weights in per_sentence], [weights.numpy() for weights in per_query]],
        titles=["sentence 1: length 2", "sentence 2: length 3", "sentence 1: lengths 1, 3", "sentence 2: lengths 2, 4"],
        x_label="keys",
        y_label="queries",
    )
    text = "\n".join(
        [
            "Softmax of the scores 0, 1, 2, 3 where only the first so many keys are real:",
            table(("length", "key 1", "key 2", "key 3", "key 4"), rows),
            "",
            prose(
                "A length of 0 gives a row of zeros, never NaN; the d2l book gives a uniform row there.",
                "Look at: masked-softmax-weights.png. Above one length for each sentence, below one for each query; padding",
                "stays white.",
            ),
        ]
    )
    numbers = {
        "scores": plain(random),
        "weights_by_sentence_length": plain(per_sentence),
        "weights_by_query_length": plain(per_query),
        "weights_of_0_1_2_3_by_length": {row[0]: [float(cell) for cell in row[1:]] for row in rows},
    }
    return Outcome(text, numbers, {"weights": figure})
