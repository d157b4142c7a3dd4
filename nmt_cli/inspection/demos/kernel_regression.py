"""Kernel regression: average pooling, a fixed Gaussian kernel, and one whose width is learned."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt_cli.attention.kernel import KernelPooling, average_pooling, leave_one_out
from nmt_cli.inspection.demos.outcome import Outcome, new_figure, plain, prose, table
from nmt_cli.inspection.plots import heat_maps

POINTS = 50
EPOCHS = 5
RATE = 0.5


def truth(x: Tensor) -> Tensor:
    """Return 2 sin x + x^0.8, the function behind the points."""
    return 2 * x.sin() + x**0.8


def made_up_points(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return 50 sorted x in [0, 5) and y = truth(x) + noise with a standard deviation of 0.5."""
    x = (torch.rand(POINTS, generator=generator) * 5).sort().values
    return x, truth(x) + 0.5 * torch.randn(POINTS, generator=generator)


def learn_width(x: Tensor, y: Tensor, generator: torch.Generator) -> tuple[KernelPooling, float, list[float]]:
    """Fit w by plain gradient descent, each point predicted from all the others.

    Returns:
        The pooling, the w that it began with (from U(0, 1)), and the squared error summed over the points before each step.
    """
    pooling = KernelPooling(learned=True)
    start = float(torch.rand((), generator=generator))
    torch.nn.init.constant_(pooling.inverse_width, start)
    optimizer = torch.optim.SGD(pooling.parameters(), lr=RATE)
    keys, values = leave_one_out(x), leave_one_out(y)
    losses = []
    for _ in range(EPOCHS):
        predicted, _ = pooling(x, keys, values)
        loss = ((predicted - y) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return pooling, start, losses


def kernel_regression(seed: int) -> Outcome:
    """Fit and draw."""
    generator = torch.Generator().manual_seed(seed)
    x, y = made_up_points(generator)
    queries = torch.arange(0, 5, 0.1)
    fixed = KernelPooling()
    learned, start, losses = learn_width(x, y, generator)
    with torch.inference_mode():
        fixed_curve, fixed_weights = fixed(queries, x, y)
        learned_curve, learned_weights = learned(queries, x, y)
    curves = {"average": average_pooling(queries, y), "fixed width": fixed_curve, "learned width": learned_curve}
    errors = {name: float(((curve - truth(queries)) ** 2).mean()) for name, curve in curves.items()}

    fits = new_figure(8, 4.5)
    axes = fits.subplots()
    axes.plot(queries, truth(queries), color="black", label="truth: 2 sin x + x^0.8")
    for name, curve in curves.items():
        axes.plot(queries, curve, linestyle="--", label=name)
    axes.scatter(x, y, s=12, color="grey", label="training points")
    axes.set(xlabel="x", ylabel="y", title="Pooling predicts y from the points around x")
    axes.legend()
    maps = heat_maps(
        [[fixed_weights.numpy(), learned_weights.numpy()]],
        titles=["width 1", f"learned width {learned.sigma:.3f}"],
        x_label="training points, by x (keys)",
        y_label="x asked for (queries)",
        limits=(0.0, float(max(fixed_weights.max(), learned_weights.max()))),
    )
    found = float(learned.inverse_width.detach())
    changes = "narrower than" if learned.sigma < 1 else "not narrower than"
    text = "\n".join(
        [
            prose(
                f"Squared error summed over the points, before each of {EPOCHS} steps;",
                f"each point is predicted from the {POINTS - 1} others:",
            ),
            *(f"epoch {epoch}, loss {loss:.6f}" for epoch, loss in enumerate(losses, start=1)),
            "",
            prose(
                f"w went from {start:.6f} to {found:.6f}: the kernel has a width of {learned.sigma:.6f},",
                f"{changes} the fixed one of 1.",
            ),
            "",
            table(("pooling", "mean squared distance from the truth"), [(k, f"{v:.6f}") for k, v in errors.items()]),
            "",
            prose(
                "Look at: kernel-regression-fits.png. Average pooling is a flat line: it does not ask. The fixed kernel",
                "follows the points but is too smooth; the learned one is more restless. kernel-regression-weights.png: the",
                "narrower the kernel, the sharper the diagonal.",
            ),
        ]
    )
    numbers = {
        "x": plain(x),
        "y": plain(y),
        "queries": plain(queries),
        "curves": {name: plain(curve) for name, curve in curves.items()},
        "weights": {"fixed width": plain(fixed_weights), "learned width": plain(learned_weights)},
        "losses": [round(loss, 6) for loss in losses],
        "w_start": start,
        "w": found,
        "learned_width": learned.sigma,
        "mean_squared_distance": errors,
    }
    return Outcome(text, numbers, {"fits": fits, "weights": maps})
