"""The training loop, from a model and its data to trained weights. Heads are never named here.

Auxiliary losses come out of ``model(x, return_loss=True)``; the loop adds them without knowing which head made them.
Every random draw is a function of seed, epoch, step and process, so that a resumed run needs no generator states.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..config import AugmentConfig, RunConfig
from ..data import Splits
from ..data.augmentation import Augmentation, Mixed
from ..data.sources import mix_seed
from .anomaly import first_nonfinite
from .checkpoint import Checkpoint, load_weights_into, plain_weights, save_checkpoint
from .ema import AveragedWeights
from .launch import read_later
from .loaders import Loader, batches_of, describe_images, eval_loader, start_epoch, train_loader
from .logger import MetricsLogger
from .losses import classification_loss
from .optim import create_optimizer, create_schedule
from .position import Position, Totals, resolve_selection
from .progress import TrainingProgress
from .stages import Stage, plan_stages, set_trainable, set_training_mode

if TYPE_CHECKING:
    from lightning_fabric import Fabric


class Trainer:
    """Trains a model on the parts of a dataset, and saves checkpoints as it goes.

    Args:
        config: The run.
        fabric: Lightning Fabric, launched.
        model: Gives logits; with ``return_loss=True`` also an auxiliary loss.
        splits: The data.
        folder: The run folder.
        checkpoint: Where to go on; None starts at the beginning.
    """

    def __init__(
        self,
        config: RunConfig,
        fabric: "Fabric",
        model: nn.Module,
        splits: Splits,
        folder: Path,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self.config, self.fabric, self.splits, self.folder = config, fabric, splits, folder
        self.started = time.perf_counter()
        if config.sync_bn and fabric.world_size > 1:
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        self.layout = torch.channels_last if config.channels_last else torch.preserve_format
        self.model = model.to(fabric.device).to(memory_format=self.layout)
        decay = 1.0 if config.optim.swa_epochs else config.optim.ema_decay
        self.average = None if decay is None else AveragedWeights(self.model, decay)
        self.stages = plan_stages(self.model, config.optim)
        # The defaults change nothing: batches stay as the loader made them.
        changes = config.augment != AugmentConfig()
        self.augment = Augmentation(config.augment, splits.train.transform.finish) if changes else None
        share = {"rank": fabric.global_rank, "world_size": fabric.world_size}
        self.loader = train_loader(config, splits.train, fabric.device, **share)
        held_out = {"val": splits.val, "test": splits.test}
        self.held_out = {
            name: eval_loader(config, part, fabric.device, **share)
            for name, part in held_out.items()
            if part is not None
        }
        self.selects_on = resolve_selection(config.select_on, has_val=splits.val is not None)
        self.position, self._saved = Position(), None if checkpoint is None else checkpoint.state
        if checkpoint is not None:
            self._restore(checkpoint)

    @property
    def trained(self) -> nn.Module:
        """The model to predict with: the averaged one if there is one."""
        return self.model if self.average is None else self.average.module

    @property
    def epochs(self) -> int:
        """Epochs of all stages."""
        return self.stages[-1].last

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch."""
        return batches_of(self.loader).steps

    def fit(self, progress: TrainingProgress, logger: MetricsLogger | None = None) -> None:
        """Trains from the current position to the last epoch."""
        for index, stage in enumerate(self.stages):
            if self.position.done >= stage.last:
                continue
            self._begin(index, stage)
            for epoch in range(self.position.done + 1, stage.last + 1):
                self._train_epoch(epoch, stage, progress)
                row = self._end_epoch(epoch)
                if logger is not None:
                    logger.append(row)
                progress.epoch(row)

    def _begin(self, index: int, stage: Stage) -> None:
        """Makes optimizer and schedule of a stage, or takes them up where the checkpoint left them."""
        set_trainable(self.model, stage.frozen)
        optimizer = create_optimizer(self.model, stage.optim)
        model: Any = torch.compile(self.model) if self.config.compile else self.model
        self.stage_index, self.optimizer = index, optimizer
        self._model, self._optimizer = self.fabric.setup(model, optimizer)
        self.schedule = create_schedule(optimizer, stage.optim, self.steps)
        if self._saved is not None and self._saved["stage"] == index:
            optimizer.load_state_dict(self._saved["optimizer"])
            self.schedule.load_state_dict(self._saved["schedule"])
            self.fabric.strategy.precision.load_state_dict(self._saved["precision"])
        self._saved = None

    def _train_epoch(self, epoch: int, stage: Stage, progress: TrainingProgress) -> None:
        position, every = self.position, self.config.checkpoint_every_steps
        start_epoch(self.loader, epoch, position.step)
        set_training_mode(self.model, stage.frozen)
        batches = iter(self.loader)
        clock = time.perf_counter()
        for step in range(position.step + 1, self.steps + 1):
            self._seed(epoch, step)
            images = self._step(epoch, step, batches)
            position.step = step
            now = time.perf_counter()
            position.totals.seconds += now - clock
            clock = now
            totals = position.totals
            progress.step(
                epoch, images * self.fabric.world_size, totals.loss / totals.images, totals.correct / totals.images
            )
            if every and step % every == 0 and step < self.steps:
                self.save_last()
                clock = time.perf_counter()

    def _step(self, epoch: int, step: int, batches: Iterator[Any]) -> int:
        """One optimizer step over all portions of its batch; returns the images this process saw."""
        optim, seen = self.config.optim, 0
        self._optimizer.zero_grad(set_to_none=True)
        for portion in range(optim.accumulate):
            batch = self._augmented(epoch, step, portion, *next(batches))
            with self.fabric.no_backward_sync(self._model, enabled=portion < optim.accumulate - 1):
                logits, aux_loss = self._model(batch.images, return_loss=True)
                loss = classification_loss(logits, batch, label_smoothing=optim.label_smoothing) + aux_loss
                numbers = read_later(loss, (logits.argmax(dim=1) == batch.target).sum())
                self.fabric.backward(loss / optim.accumulate)
            value, correct = numbers()
            if not math.isfinite(value):
                raise self._not_finite(value, batch.images, epoch, step, portion)
            seen += len(batch.target)
            self.position.totals.loss += value * len(batch.target)
            self.position.totals.correct += correct
        if optim.clip_norm is not None:
            self.fabric.clip_gradients(self._model, self._optimizer, max_norm=optim.clip_norm)
        self._optimizer.step()
        self.schedule.step()
        if self.average is not None:
            self.average.update(self.model)
            if optim.swa_epochs and epoch <= self.epochs - optim.swa_epochs:
                self.average.updates = 0  # The next update copies the model: averaging has not begun.
        self.position.totals.images += seen
        return seen

    def _end_epoch(self, epoch: int) -> dict[str, Any]:
        """Evaluates, notes the numbers of the epoch, and saves."""
        totals, position = self._reduced_totals(), self.position
        row = {"epoch": epoch, "train_loss": totals.loss / totals.images, "lr": self.optimizer.param_groups[0]["lr"]}
        row |= {"train_accuracy": totals.correct / totals.images, "seconds": totals.seconds}
        row["images_per_second"] = totals.images / max(totals.seconds, 1e-9)
        for name, loader in self.held_out.items():
            if name == "val" or name == self.selects_on:
                row[f"{name}_accuracy"] = self.evaluate(loader)
        position.rows.append(row)
        position.done, position.step, position.totals = epoch, 0, Totals()
        self._note_best(epoch, row.get(f"{self.selects_on}_accuracy"))
        self.save_last()
        return row

    def _note_best(self, epoch: int, accuracy: float | None) -> None:
        best = self.position.best
        if accuracy is not None and (best is None or accuracy > best["accuracy"]):
            self.position.best = {"epoch": epoch, "accuracy": accuracy}
            self.save_best()

    @torch.no_grad()
    def evaluate(self, loader: Loader) -> float:
        """Top-1 accuracy in [0, 1] over a loader, counted over all processes."""
        model = self.trained.eval()
        counts = torch.zeros(2, dtype=torch.float64, device=self.fabric.device)
        for batch in loader:
            x, target = self._to_device(*batch)
            with self.fabric.autocast():
                logits = model(x)
            counts[0] += (logits.argmax(dim=1) == target).sum()
            counts[1] += len(target)
        correct, images = self._sum(counts).tolist()
        return correct / images

    def save_last(self) -> None:
        """Writes the checkpoint from which training resumes to the step."""
        position = asdict(self.position) | {"totals": asdict(self._reduced_totals()), "seconds": self.seconds()}
        if not self.fabric.is_global_zero:
            return
        state = {
            "position": position,
            "stage": self.stage_index,
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "learning": None if self.average is None else plain_weights(self.model),
            "averaged": None if self.average is None else self.average.updates,
        }
        self._save("last", state)

    def save_best(self) -> None:
        """Writes the checkpoint that is reported."""
        if self.fabric.is_global_zero:
            self._save("best", None)

    def seconds(self) -> float:
        """Time of this and all earlier sessions."""
        return self.position.seconds + time.perf_counter() - self.started

    def _save(self, which: str, state: dict[str, Any] | None) -> None:
        save_checkpoint(
            self.folder,
            which,
            config=self.config,
            classes=self.splits.info.classes,
            model=self.trained,
            epoch=self.position.done,
            step=self.position.step,
            state=state,
        )

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Puts weights and position back; optimizer and schedule follow when their stage begins."""
        state = checkpoint.state
        if state is None:
            raise ValueError(f"train: expected a checkpoint with training state in {str(self.folder)!r}, got none.")
        where = str(self.folder)
        load_weights_into(self.trained, checkpoint.weights, where)
        if self.average is not None:
            load_weights_into(self.model, state["learning"], where)
            self.average.updates = state["averaged"]
        position = state["position"]
        # The saved sums are those of all processes together.
        totals = Totals(**position["totals"]) if self.fabric.is_global_zero else Totals()
        self.position = Position(**{**position, "totals": totals})

    def _augmented(self, epoch: int, step: int, portion: int, x: Tensor, target: Tensor) -> Mixed:
        """The batch on the device, changed at random as a function of seed, epoch, step and image."""
        if self.augment is None:
            return Mixed(*self._to_device(x, target))
        x, target = (tensor.to(self.fabric.device, non_blocking=True) for tensor in (x, target))
        sampler = batches_of(self.loader)
        begin = (portion * sampler.world_size + sampler.rank) * sampler.share
        seed = (self.config.seed, epoch, step)
        batch = self.augment(x, target, seed=seed, begin=begin, total=sampler.batch_size)
        return batch._replace(images=batch.images.to(memory_format=self.layout))

    def _to_device(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        device = self.fabric.device
        return x.to(device, non_blocking=True, memory_format=self.layout), target.to(device, non_blocking=True)

    def _seed(self, epoch: int, step: int) -> None:
        torch.manual_seed(mix_seed(self.config.seed, epoch, step, self.fabric.global_rank))

    def _sum(self, values: Tensor) -> Tensor:
        if self.fabric.world_size == 1:
            return values
        return self.fabric.all_reduce(values, reduce_op="sum")  # type: ignore[return-value]

    def _reduced_totals(self) -> Totals:
        own = self.position.totals
        values = torch.tensor([own.loss, own.correct, own.images], dtype=torch.float64, device=self.fabric.device)
        loss, correct, images = self._sum(values).tolist()
        return Totals(loss, correct, int(images), own.seconds)

    def _not_finite(self, value: float, x: Tensor, epoch: int, step: int, portion: int) -> FloatingPointError:
        self._seed(epoch, step)
        with self.fabric.autocast():
            where = first_nonfinite(self.model, x)
        images = describe_images(self.splits.train, batches_of(self.loader).portion(step, portion))
        return FloatingPointError(
            f"train: expected a finite loss, got {value} at epoch {epoch}, step {step}; first not finite: {where}; "
            f"batch: training images {images}; lower optim.lr (now {self.optimizer.param_groups[0]['lr']:.3g}), "
            "set optim.clip_norm, or look at these images."
        )
