"""Dividing by the trace or by its square root: scale decides how fast a descriptor trains

The paper divides the output of iSICE by its trace, the published code by the square root of the
trace. The matrices are equal up to a factor per image, but the trace grows with the number of
channels: divided by it, entries of a 256-channel descriptor are below 0.001 (left). AdamW changes a
weight by about the learning rate per step, so small inputs need more steps. Right: a linear
classifier on handwritten digits, with descriptors of an untrained network with 64 channels. Divided
by the trace it learns several times slower; undivided it starts at a loss more than ten times that
of chance. The default is `normalize="sqrt_trace"`; `"trace"` and `"none"` are options.

Usage: python examples/plot_output_scale.py [figure.png]
"""

import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch
from matplotlib.ticker import FormatStrFormatter, LogLocator, MaxNLocator, NullLocator
from sklearn.datasets import load_digits
from torch.nn.functional import cross_entropy

import isice.functional as F
from isice import create_model
from isice.report.theme import colour_of, style

SCALES = {"sqrt_trace": "÷ √trace (published code)", "trace": "÷ trace (paper)", "none": "no division"}
CHANNELS = (16, 32, 64, 128, 256)
EPOCHS, BATCH, LEARNING_RATE, N_TRAIN, N_TEST = 20, 64, 1e-3, 800, 400


def typical_entry(channels: int, normalize: str) -> float:
    """Return the root mean square of descriptors of random ReLU features (14×14 positions)."""
    features = torch.randn(2, channels, 14, 14, generator=torch.Generator().manual_seed(0)).relu()
    return float(F.vectorize(F.isice(F.covariance(features), normalize=normalize)).square().mean().sqrt())


def digit_covariances() -> tuple[torch.Tensor, torch.Tensor]:
    """Return covariances of features of an untrained network, and labels."""
    torch.manual_seed(0)
    raw = load_digits()
    model = create_model("small_cnn", pooling="covariance", num_classes=10, reduce=None, in_chans=1).eval()
    images = torch.from_numpy(raw.images[: N_TRAIN + N_TEST] / 16.0).float().unsqueeze(1)
    with torch.no_grad():
        return F.covariance(model.forward_features(images)), torch.from_numpy(raw.target[: N_TRAIN + N_TEST])


def test_errors(vectors: torch.Tensor, labels: torch.Tensor) -> tuple[float, list[float]]:
    """Return a linear classifier's initial loss and its test error (%) after each epoch."""
    train, test = (vectors[N_TEST:], labels[N_TEST:]), (vectors[:N_TEST], labels[:N_TEST])
    torch.manual_seed(0)
    classifier = torch.nn.Linear(vectors.shape[1], 10)
    optimizer = torch.optim.AdamW(classifier.parameters(), lr=LEARNING_RATE)
    first, errors = float(cross_entropy(classifier(train[0]), train[1]).detach()), []
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(train[1])).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(classifier(train[0][batch]), train[1][batch]).backward()
            optimizer.step()
        errors.append(100 * float((classifier(test[0]).argmax(dim=1) != test[1]).float().mean()))
    return first, errors


def main(out: str) -> None:
    cov, labels = digit_covariances()
    with mpl.rc_context(style()):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), dpi=110)
        for index, (normalize, name) in enumerate(SCALES.items()):
            look = {"color": colour_of(index), "linewidth": 1.8}
            sizes = [typical_entry(channels, normalize) for channels in CHANNELS]
            left.plot(CHANNELS, sizes, marker="o", label=name, **look)
            with torch.no_grad():
                vectors = F.vectorize(F.isice(cov, normalize=normalize))
            first, errors = test_errors(vectors, labels)
            right.plot(range(1, EPOCHS + 1), errors, **look)
            print(f"{name}: entries {sizes[-1]:.1e} at 256 channels, first loss {first:.1f}, error {errors[-1]:.1f} %")
        left.set(xscale="log", yscale="log", xlabel="channels", ylabel="typical entry", title="size of the descriptor")
        left.set_xticks(CHANNELS, [str(channels) for channels in CHANNELS])
        left.minorticks_off()
        right.set(yscale="log", xlabel="epoch", ylabel="test error (%)", title="linear classifier on digits")
        right.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        right.yaxis.set_major_formatter(FormatStrFormatter("%g"))
        right.yaxis.set_minor_locator(NullLocator())
        right.xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.legend(loc="outside upper center", ncols=3)
        figure.savefig(out)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "output_scale.png")
