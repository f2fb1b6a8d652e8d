"""A run of about a second, a model without BatchNorm, and helpers to compare two runs."""

from torch import nn

from isice.config import RunConfig, override

TINY = override(
    RunConfig(),
    [
        "model.pooling=isqrt_cov",
        "model.reduce=8",
        "data.val_fraction=0.2",
        "data.batch_size=32",
        "optim.epochs=2",
        "optim.lr=0.01",
        "optim.schedule=cosine",
        "device=cpu",
        "threads=1",
        "tensorboard=false",
        "select_on=last",
    ],
)


class Linear(nn.Module):
    """A linear model with the submodules of a network and a constant auxiliary loss."""

    def __init__(self, aux: float = 0.0) -> None:
        super().__init__()
        self.reduce = nn.Identity()
        self.pooling = nn.Flatten()
        self.classifier = nn.Linear(64, 10)
        self.aux = aux

    def forward(self, x, return_loss=False):
        logits = self.classifier(self.pooling(self.reduce(x)))
        return (logits, logits.new_tensor(self.aux)) if return_loss else logits


def build_linear(config, splits):
    return Linear()


def without_times(rows):
    """Return the metrics of each epoch without timings."""
    return [{key: value for key, value in row.items() if key not in ("seconds", "images_per_second")} for row in rows]


def weights_of(folder, which="last"):
    """Return the bytes of a checkpoint's weights."""
    return (folder / "checkpoints" / which / "model.safetensors").read_bytes()
