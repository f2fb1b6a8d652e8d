"""``isice eval``, ``predict``, ``features``, ``export`` and ``push``: use a trained network."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track

from .._markup import escape_control
from ._app import BATCH_SIZE, Device, Run, Settings, Which, app, console, facts_table, table, tell

if TYPE_CHECKING:
    from ..inference import Evaluation, Prediction

Flip = Annotated[bool, typer.Option("--flip", help="Average over each image and its mirror image.")]
Source = Annotated[str, typer.Argument(metavar="RUN", help="Run folder, hf-hub:owner/name or local-dir:PATH.")]
Images = Annotated[list[str], typer.Argument(metavar="IMAGES...", help="Files, glob patterns and folders.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


@app.command("eval")
def eval_(
    run: Run,
    split: Annotated[str, typer.Option("--split", metavar="test|val|train", help="Split of the data.")] = "test",
    which: Which = "best",
    flip: Flip = False,
    device: Device = "auto",
    batch_size: Annotated[int | None, BATCH_SIZE] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Evaluate a run: accuracy, per-class accuracy, calibration, confusions.

    The result is added to RUN/evaluation.json.

    Examples:

    - `isice eval runs/train/isice-0123456789ab`

    - `isice eval RUN --split val --flip --set data.root=elsewhere --device cpu`
    """
    from ..inference import evaluate_run

    asked = [] if device == "auto" else [f"device={device}"]
    asked += [] if batch_size is None else [f"data.batch_size={batch_size}"]
    options = [*asked, *(settings or ())]
    progress = partial(track, description="evaluating", console=Console(stderr=True), transient=True)
    evaluation = evaluate_run(run, split=split, which=which, flip=flip, settings=options, track=progress)
    if as_json:
        typer.echo(json.dumps(evaluation.to_dict(), ensure_ascii=False, allow_nan=False))
        return
    _show_evaluation(evaluation)
    tell(f"wrote {run / 'evaluation.json'}")


@app.command()
def predict(
    run: Source,
    images: Images,
    topk: Annotated[int, typer.Option("--topk", help="Classes per image.")] = 3,
    which: Which = "best",
    flip: Flip = False,
    device: Device = "auto",
    batch_size: Annotated[int, BATCH_SIZE] = 32,
    as_json: Json = False,
) -> None:
    """Predict the classes of image files. Exits with 1 if some are unreadable.

    Unreadable images are skipped, and reported on stderr or in their entries with --json.

    Examples:

    - `isice predict RUN photo.jpg "more/*.png" folder`

    - `isice predict RUN folder --topk 1 --json > predictions.json`
    """
    from ..inference import find_images, load_predictor

    files = find_images(images)
    predictor = load_predictor(run, which, device)
    found = list(predictor.predict(files, topk=topk, flip=flip, batch_size=batch_size))
    bad = [one for one in found if one.error is not None]
    if as_json:
        typer.echo(json.dumps([one.to_dict() for one in found], indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show_predictions([one for one in found if one.error is None])
        for one in bad:
            typer.echo(escape_control(f"error: {one.image}: {one.error}"), err=True)
    if bad:
        raise typer.Exit(1)


@app.command()
def features(
    run: Source,
    images: Images,
    out: Annotated[Path, typer.Option("--out", help="Output file, .npz or .parquet.")] = Path("features.npz"),
    which: Which = "best",
    device: Device = "auto",
    batch_size: Annotated[int, BATCH_SIZE] = 32,
) -> None:
    """Write pooled vectors of image files: arrays `vectors` (N, F), `images` (N,) in an .npz file.

    A .parquet file has the columns `image` and `vector`; it needs pyarrow.

    Example: `isice features RUN folder --out birds.npz`
    """
    from ..inference import find_images, load_predictor
    from ..inference.features_file import check_features_file, write_features

    check_features_file(out)
    files = find_images(images)
    vectors = load_predictor(run, which, device).features(files, batch_size=batch_size)
    write_features(out, files, vectors.numpy())
    tell(f"wrote {out}: {vectors.shape[0]:,} vectors of {vectors.shape[1]:,} numbers")


@app.command()
def export(
    run: Run,
    format: Annotated[str, typer.Option("--format", metavar="onnx|torch", help="ONNX or torch.export.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option("--out", help="Output file. [default: RUN/model.onnx or RUN/model.pt2]")
    ] = None,
    which: Which = "best",
) -> None:
    """Export a network for any batch size, and verify the file on random images.

    Examples:

    - `isice export RUN`

    - `isice export RUN --format torch --out birds.pt2`
    """
    from ..inference import export_run

    exported = export_run(run, format, out, which=which)
    tell(f"verified on {exported.images} images: largest relative difference of logits {exported.difference:.1e}")
    tell(f"wrote {exported.path}")


@app.command()
def push(
    run: Run,
    repo: Annotated[str, typer.Argument(metavar="REPO", help="owner/name on the Hugging Face Hub, or ./FOLDER.")],
    which: Which = "best",
    private: Annotated[bool, typer.Option("--private", help="Make a new repository private.")] = False,
) -> None:
    """Push a network to the Hugging Face Hub: weights, config and a model card from the record.

    Log in first with `hf auth login`. Examples:

    - `isice push RUN owner/birds`, then `isice.create_model("hf-hub:owner/birds")`

    - `isice push RUN ./birds`, then `isice.create_model("./birds")`
    """
    from ..inference import push_run

    tell(f"wrote {push_run(run, repo, which=which, private=private)}")


def _show_predictions(predictions: "list[Prediction]") -> None:
    made = table("image", "prediction")
    made.columns[0].no_wrap = False
    for one in predictions:
        classes = "  ".join(f"{name} {probability:.1%}" for name, probability in one.classes)
        made.add_row(one.image, classes)
    if predictions:
        console.print(made)


def _show_evaluation(evaluation: "Evaluation", most: int = 5) -> None:
    facts, scores, classes = evaluation.to_dict(), evaluation.scores, evaluation.classes
    low, high = facts["top1_interval"]
    flipped = ", averaged over horizontal flips" if facts["flip"] else ""
    console.print(
        facts_table(
            [
                ("split", f"{facts['split']}, {scores.images:,} images, weights of epoch {facts['epoch']}{flipped}"),
                ("top-1 accuracy", f"{scores.top1:.2%}  (95 % interval {low:.1%} to {high:.1%})"),
                ("top-5 accuracy", "fewer than five classes" if scores.top5 is None else f"{scores.top5:.2%}"),
                ("calibration error", f"{scores.ece:.4f}"),
            ]
        ),
        highlight=False,
    )
    known = sorted((rate, name) for name, rate in zip(classes, scores.per_class, strict=True) if rate is not None)
    title = "Classes, worst first"
    if len(known) > 2 * most:
        title = f"The {most} worst and {most} best of {len(known)} classes"
        known = [*known[:most], *known[-most:]]
    made = table("accuracy", "class", title=title)
    for rate, name in known:
        made.add_row(f"{rate:.1%}", name)
    console.print(made)
    mistakes = table("count", "true → predicted", title="Most frequent confusions")
    for true, predicted, count in scores.confused_pairs(most):
        mistakes.add_row(str(count), f"{classes[true]} → {classes[predicted]}")
    if mistakes.row_count:
        console.print(mistakes)
