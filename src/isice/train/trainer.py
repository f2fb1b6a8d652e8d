"""The training loop.

Every random draw is a function of seed, epoch, step and rank, so that resuming needs no generator
states. The auxiliary loss of a pooling layer comes from ``model(x, return_loss=True)``.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from timm.layers import convert_sync_batchnorm  # type: ignore[attr-defined]
from torch import Tensor, nn
from torch.nn.functional import nll_loss

from ..config import AugmentConfig, RunConfig
from ..data import Splits
from ..data.augmentation import Augmentation, Mixed
from ..data.fingerprint import Fingerprint
from ..data.sources import mix_seed
from ..models import Network, initialize
from ..models.weights import plain_weights
from .anomaly import first_nonfinite, first_nonfinite_weights
from .checkpoint import Checkpoint, CheckpointWriter, load_weights_into
from .ema import AveragedWeights
from .launch import copy_to_host, with_compiled_backbone
from .loaders import Loader, batch_sampler, describe_images, eval_loader, start_epoch, train_loader
from .logger import MetricsLogger
from .losses import classification_loss
from .optim import create_optimizer, create_schedule
from .progress import TrainingProgress
from .scoring import probabilities
from .selection import check_patience, is_out_of_patience, resolve_selection
from .stages import Stage, plan_stages, set_trainable, set_training_mode
from .state import Totals, TrainerState
from .timing import PhaseTimer

if TYPE_CHECKING:
    from lightning_fabric import Fabric

# Epochs that end within this time after a checkpoint write none: copying the optimizer's state
# takes a tenth of a second for every 100 MB.
SAVE_SECONDS = 30.0


class Trainer:
    """Train a model and save checkpoints.

    ``model`` returns logits, and with ``return_loss=True`` also an auxiliary loss. ``checkpoint``
    is the one to resume from; ``data``, the fingerprint of the data, is saved in checkpoints.
    ``timer`` measures the run from its beginning.
    """

    def __init__(
        self,
        config: RunConfig,
        fabric: "Fabric",
        model: nn.Module,
        splits: Splits,
        folder: Path,
        checkpoint: Checkpoint | None,
        data: Fingerprint,
        timer: PhaseTimer,
    ) -> None:
        self.config, self.fabric, self.splits, self.folder = config, fabric, splits, folder
        self.timer, self.data = timer, data
        self._writer, self._last_save, self._unsaved = CheckpointWriter(), -math.inf, False
        self.layout = torch.channels_last if config.channels_last else torch.preserve_format
        self.model = model.to(fabric.device).to(memory_format=self.layout)
        decay = 1.0 if config.optim.swa_epochs else config.optim.ema_decay
        self.average = None if decay is None else AveragedWeights(self.model, decay)
        self.stages = plan_stages(self.model, config.optim)
        # The default settings leave batches unchanged.
        changes = config.augment != AugmentConfig()
        self.augment = Augmentation(config.augment, splits.train.transform.finish) if changes else None
        share = {"rank": fabric.global_rank, "world_size": fabric.world_size}
        held_out = {name: split for name, split in splits.by_name.items() if name != "train"}
        with self.timer("data"):
            self.loader = train_loader(config, splits.train, fabric.device, **share)
            self.held_out = {n: eval_loader(config, split, fabric.device, **share) for n, split in held_out.items()}
        self.selects_on = resolve_selection(config.select_on, has_val=splits.val is not None)
        check_patience(config, self.selects_on)
        self.state, self._saved = TrainerState(), None if checkpoint is None else checkpoint.state
        if checkpoint is not None:
            self._restore(checkpoint)

    @property
    def trained(self) -> nn.Module:
        """The model to evaluate and save: the averaged one if ``optim.ema_decay`` is set."""
        return self.model if self.average is None else self.average.module

    @property
    def epochs(self) -> int:
        """Number of epochs over all stages."""
        return self.stages[-1].last

    @property
    def steps(self) -> int:
        """Optimizer steps per epoch."""
        return batch_sampler(self.loader).steps

    def fit(self, progress: TrainingProgress, logger: MetricsLogger | None = None) -> None:
        """Train from the current step to the last epoch, or until ``optim.patience`` ends."""
        if self.state.done == 0 and self.state.step == 0:
            self._initialize()
        if self.config.sync_bn and self.fabric.world_size > 1:
            # After the start from data, which rank 0 computes alone: SyncBatchNorm would wait.
            self.model = convert_sync_batchnorm(self.model)  # type: ignore[no-untyped-call]
        self.timer.start_training()
        try:
            for index, stage in enumerate(self.stages):
                if self.state.done >= stage.last:
                    continue
                self._start_stage(index, stage)
                for epoch in range(self.state.done + 1, stage.last + 1):
                    if is_out_of_patience(stage, self.state.done, self.state.best):
                        break
                    self._train_epoch(epoch, stage, progress)
                    row = self._end_epoch(epoch)
                    if logger is not None:
                        logger.append(row)
                        self.fabric.log_dict(row, step=epoch)
                    progress.epoch(row)
            if self._unsaved:
                self.save_last()
        finally:
            self.wait_for_checkpoints()

    def _initialize(self) -> None:
        """Start the pooling from training features: computed by rank 0, the same on all ranks.

        A pooling with all its weights from a file keeps them.
        """
        if not (isinstance(self.model, Network) and self.model.pooling.wants_data):
            return
        report = self.model.load_report
        if report is not None and not any(name.startswith("pooling.") for name in report.missing + report.wrong_shape):
            self.state.start_images = 0
            return
        if self.fabric.is_global_zero:
            set_training_mode(self.model, self.stages[0].frozen)
            start_epoch(self.loader, 1)
            batches = (self._to_device(*batch)[0] for batch in self.loader)
            with self.fabric.autocast():
                self.state.start_images = initialize(self.model, batches)
        found = (self.state.start_images, plain_weights(self.model.pooling))
        self.state.start_images, weights = self.fabric.broadcast(found)
        self.model.pooling.load_state_dict(weights)

    def _start_stage(self, index: int, stage: Stage) -> None:
        """Create optimizer and schedule of a stage; restore them from a checkpoint of it."""
        set_trainable(self.model, stage.frozen)
        optimizer = create_optimizer(self.model, stage.optim)
        model = with_compiled_backbone(self.model) if self.config.compile else self.model
        self.stage_index, self.optimizer = index, optimizer
        self._model, self._optimizer = self.fabric.setup(model, optimizer)
        self.schedule = create_schedule(optimizer, stage.optim, self.steps)
        if self._saved is not None and self._saved["stage"] == index:
            optimizer.load_state_dict(self._saved["optimizer"])
            self.schedule.load_state_dict(self._saved["schedule"])
            self.fabric.strategy.precision.load_state_dict(self._saved["precision"])
        self._saved = None

    def _train_epoch(self, epoch: int, stage: Stage, progress: TrainingProgress) -> None:
        state, every = self.state, self.config.checkpoint_every_steps
        start_epoch(self.loader, epoch, state.step)
        set_training_mode(self.model, stage.frozen)
        batches = iter(self.loader)
        clock = time.perf_counter()
        for step in range(state.step + 1, self.steps + 1):
            self._seed(epoch, step)
            images = self._step(epoch, step, batches)
            state.step = step
            now = time.perf_counter()
            totals = state.totals
            totals.seconds += now - clock
            clock = now
            progress.step(
                epoch, images * self.fabric.world_size, totals.loss / totals.images, totals.correct / totals.images
            )
            if every and step % every == 0 and step < self.steps:
                self.save_last()
                clock = time.perf_counter()

    def _step(self, epoch: int, step: int, batches: Iterator[Any]) -> int:
        """Make one optimizer step over all micro-batches; return this rank's number of images."""
        optim, seen = self.config.optim, 0
        self._optimizer.zero_grad(set_to_none=True)
        for micro_batch in range(optim.accumulate):
            batch = self._augmented(epoch, step, micro_batch, *next(batches))
            with self.fabric.no_backward_sync(self._model, enabled=micro_batch < optim.accumulate - 1):
                logits, aux_loss = self._model(batch.images, return_loss=True)
                loss = classification_loss(logits, batch, label_smoothing=optim.label_smoothing) + aux_loss
                numbers = copy_to_host(loss, (logits.argmax(dim=1) == batch.target).sum())
                self.fabric.backward(loss / optim.accumulate)
            value, correct = numbers()
            if not math.isfinite(value):
                raise self._not_finite(value, batch.images, epoch, step, micro_batch)
            seen += len(batch.target)
            self.state.totals.loss += value * len(batch.target)
            self.state.totals.correct += correct
        if optim.clip_norm is not None:
            self.fabric.clip_gradients(self._model, self._optimizer, max_norm=optim.clip_norm)
        self._optimizer.step()
        self.schedule.step()
        if self.average is not None:
            self.average.update(self.model)
            if optim.swa_epochs and epoch <= self.epochs - optim.swa_epochs:
                self.average.updates = 0  # before averaging: the next update copies the model
        self.state.totals.images += seen
        return seen

    def _end_epoch(self, epoch: int) -> dict[str, Any]:
        """Evaluate, record the metrics of the epoch, and save checkpoints."""
        self._check_weights(epoch)
        totals, state = self._reduced_totals(), self.state
        row = {"epoch": epoch, "train_loss": totals.loss / totals.images, "lr": self.optimizer.param_groups[0]["lr"]}
        row |= {"train_accuracy": totals.correct / totals.images, "seconds": totals.seconds}
        row["images_per_second"] = totals.images / max(totals.seconds, 1e-9)
        if self.config.data.workers:
            # The first evaluation starts loader processes, which must not inherit a writing thread.
            self.wait_for_checkpoints()
        for name, loader in self.held_out.items():
            if name == "val" or name == self.selects_on:
                row[f"{name}_accuracy"], row[f"{name}_loss"] = self.evaluate(loader)
        state.rows.append(row)
        state.done, state.step, state.totals = epoch, 0, Totals()
        improved = self._update_best(epoch, row.get(f"{self.selects_on}_accuracy"))
        # A new "best" is saved with its "last": a resumed run must know the epoch of those weights.
        self._unsaved = not improved and time.perf_counter() - self._last_save < SAVE_SECONDS
        if not self._unsaved:
            self.save_last()
        return row

    def _check_weights(self, epoch: int) -> None:
        """Refuse weights that the last step has broken, before they are saved."""
        broken = first_nonfinite_weights(self.trained)
        if broken is not None:
            raise FloatingPointError(
                f"train: expected finite weights after epoch {epoch}, got others in {broken}; lower optim.lr (now "
                f"{self.optimizer.param_groups[0]['lr']:.3g}) or set optim.clip_norm. checkpoints/last is intact."
            )

    def _update_best(self, epoch: int, accuracy: float | None) -> bool:
        best = self.state.best
        if accuracy is None or (best is not None and accuracy <= best["accuracy"]):
            return False
        self.state.best = {"epoch": epoch, "accuracy": accuracy}
        self.save_best()
        return True

    def evaluate(self, loader: Loader) -> tuple[float, float]:
        """Return top-1 accuracy in [0, 1] and mean cross-entropy over all processes."""
        model = self.trained.eval()
        counts = torch.zeros(4, dtype=torch.float64, device=self.fabric.device)
        with self.timer("evaluate"):
            for batch in loader:
                x, target = self._to_device(*batch)
                found = probabilities(model, x, flip=self.config.eval_flip, precision=self.config.precision)
                counts[0] += (found.argmax(dim=1) == target).sum()
                counts[1] += len(target)
                counts[2] += (~found.isfinite()).any(dim=1).sum()
                counts[3] += nll_loss(found.clamp_min(1e-30).log(), target, reduction="sum")
            correct, images, broken, loss = self._sum(counts).tolist()
        if broken:
            raise FloatingPointError(
                f"train: expected finite logits, got others for {broken:.0f} of {images:.0f} held-out images; "
                "lower optim.lr, set optim.clip_norm, or use a higher precision."
            )
        return correct / images, loss / images

    def save_last(self) -> None:
        """Write the checkpoint ``last``, from which training resumes at the same step."""
        position = asdict(self.state) | {"totals": asdict(self._reduced_totals()), "seconds": self.seconds()}
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
        self._last_save = time.perf_counter()

    def save_best(self) -> None:
        """Write the checkpoint ``best``, whose accuracy is reported."""
        if self.fabric.is_global_zero:
            self._save("best", None)

    def wait_for_checkpoints(self) -> None:
        """Wait until every checkpoint is on disk."""
        with self.timer("checkpoints"):
            self._writer.wait()

    def seconds(self) -> float:
        """Return the wall-clock time of this and all earlier sessions."""
        return self.state.seconds + self.timer.total()

    def _save(self, which: str, state: dict[str, Any] | None) -> None:
        with self.timer("checkpoints"):
            self._writer.save(
                self.folder,
                which,
                config=self.config,
                classes=self.splits.info.classes,
                model=self.trained,
                epoch=self.state.done,
                step=self.state.step,
                state=state,
                data=self.data,
            )

    def _restore(self, checkpoint: Checkpoint) -> None:
        """Restore weights and counters; :meth:`_start_stage` restores optimizer and schedule."""
        state = checkpoint.state
        if state is None:
            raise ValueError(f"train: expected a checkpoint with training state in {str(self.folder)!r}, got none.")
        where = str(self.folder)
        load_weights_into(self.trained, checkpoint.weights, where)
        if self.average is not None:
            load_weights_into(self.model, state["learning"], where)
            self.average.updates = state["averaged"]
        position = state["position"]
        # The saved totals are sums over all processes: restore them in one process only.
        totals = Totals(**position["totals"]) if self.fabric.is_global_zero else Totals()
        self.state = TrainerState(**{**position, "totals": totals})

    def _augmented(self, epoch: int, step: int, micro_batch: int, x: Tensor, target: Tensor) -> Mixed:
        """Move a micro-batch to the device; augment it by seed, epoch, step and image."""
        if self.augment is None:
            return Mixed(*self._to_device(x, target))
        x, target = (tensor.to(self.fabric.device, non_blocking=True) for tensor in (x, target))
        sampler = batch_sampler(self.loader)
        begin = (micro_batch * sampler.world_size + sampler.rank) * sampler.size
        seed = (self.config.seed, epoch, step)
        batch = self.augment(x, target, seed=seed, begin=begin, total=sampler.batch_size)
        return batch._replace(images=batch.images.to(memory_format=self.layout))

    def _to_device(self, x: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        device = self.fabric.device
        return x.to(device, non_blocking=True, memory_format=self.layout), target.to(device, non_blocking=True)

    def _seed(self, epoch: int, step: int) -> None:
        torch.manual_seed(mix_seed(self.config.seed, epoch, step, self.fabric.global_rank))

    def _sum(self, values: Tensor) -> Tensor:
        return self.fabric.all_reduce(values, reduce_op="sum")  # type: ignore[return-value]

    def _reduced_totals(self) -> Totals:
        own = self.state.totals
        values = torch.tensor([own.loss, own.correct, own.images], dtype=torch.float64, device=self.fabric.device)
        loss, correct, images = self._sum(values).tolist()
        return Totals(loss, correct, int(images), own.seconds)

    def _not_finite(self, value: float, x: Tensor, epoch: int, step: int, micro_batch: int) -> FloatingPointError:
        self._seed(epoch, step)
        with self.fabric.autocast():
            where = first_nonfinite(self.model, x)
        images = describe_images(self.splits.train, batch_sampler(self.loader).micro_batch(step, micro_batch))
        return FloatingPointError(
            f"train: expected a finite loss, got {value} at epoch {epoch}, step {step}; first not finite: {where}; "
            f"training images of the batch: {images}; lower optim.lr (now {self.optimizer.param_groups[0]['lr']:.3g}), "
            "set optim.clip_norm, or check these images."
        )
