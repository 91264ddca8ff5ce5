"""Pictures of a run."""

from __future__ import annotations

import io

from seqlab.workflows.run_folder import Line

TRAIN, VALIDATION, INK = "#8aa4c8", "#b3392f", "#222222"


def loss_curve(lines: list[Line], title: str) -> bytes:
    """Training and validation loss against the tokens trained on, as PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    train = [(x["tokens"] / 1e6, x["train_nats_per_token"]) for x in lines if "train_nats_per_token" in x]
    checks = [(x["tokens"] / 1e6, x["validation_nats_per_token"]) for x in lines if "validation_nats_per_token" in x]
    axes.plot([x for x, _ in train], [y for _, y in train], color=TRAIN, linewidth=1.4, label="training")
    if checks:
        axes.plot(
            [x for x, _ in checks],
            [y for _, y in checks],
            color=VALIDATION,
            marker="o",
            markersize=3.5,
            label="validation",
        )
        best = min(checks, key=lambda point: point[1])
        axes.annotate(
            f"best {best[1]:.3f}",
            best,
            xytext=(-6, 14),
            textcoords="offset points",
            ha="right",
            color=VALIDATION,
        )
    if train:
        axes.set_ylim(*_range_without_first_spike([y for _, y in train + checks]))
    axes.set_xlabel("tokens trained on (millions)")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title, color=INK, fontsize=11)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _range_without_first_spike(values: list[float]) -> tuple[float, float]:
    """The first steps are far above the rest and would flatten the curve."""
    low, ranked = min(values), sorted(values)
    high = ranked[int(0.97 * (len(ranked) - 1))]
    margin = 0.06 * (high - low) or 0.1
    return low - margin, high + margin
