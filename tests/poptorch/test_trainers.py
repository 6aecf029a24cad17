"""Others' loops around a wrapped model: one in the manner of Hugging Face's Trainer, that Trainer, and Lightning."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import poptorch

transformers = pytest.importorskip("transformers")

BATCH, ACCUMULATION, STEPS = 4, 2, 6


def classifier(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    configuration = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, max_position_embeddings=16, num_labels=3,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(configuration)


class Sentences(torch.utils.data.Dataset):
    """Rows of tokens with a mask and a label, as tokenizers give them."""

    def __init__(self, length: int = STEPS * BATCH * ACCUMULATION, seed: int = 1) -> None:
        draw = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(0, 50, (length, 8), generator=draw)
        self.labels = torch.randint(0, 3, (length,), generator=draw)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {
            "input_ids": self.tokens[i],
            "attention_mask": torch.ones(8, dtype=torch.int64),
            "labels": self.labels[i],
        }


def collated(rows: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def options() -> poptorch.Options:
    made = poptorch.Options()
    made.Training.gradientAccumulation(ACCUMULATION)
    return made


def schedule_of(optimizer: torch.optim.Optimizer):
    return transformers.get_linear_schedule_with_warmup(optimizer, 2, STEPS)


class Trainer:
    """Trains, evaluates, saves and goes on, as programs for the machine did it."""

    def __init__(self, model: torch.nn.Module, data: Sentences, folder: Path) -> None:
        self.model, self.data, self.folder = model, data, folder
        self.optimizer = poptorch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
        self.scheduler = schedule_of(self.optimizer)
        self.training = poptorch.trainingModel(model.train(), options(), self.optimizer)
        self.inference = poptorch.inferenceModel(model, poptorch.Options())
        self.step = 0

    def train(self, steps: int) -> list[float]:
        losses = []
        loader = poptorch.DataLoader(options(), self.data, batch_size=BATCH, collate_fn=collated)
        for i, batch in enumerate(loader):
            if not self.step <= i < self.step + steps:
                continue
            outputs = self.training(**batch)
            losses.append(float(outputs.loss))
            self.scheduler.step()
            self.training.setOptimizer(self.optimizer)
        self.step += steps
        return losses

    def evaluate(self) -> float:
        loader = poptorch.DataLoader(poptorch.Options(), self.data, batch_size=8, collate_fn=collated)
        self.model.eval()
        right = []
        for batch in loader:
            labels = batch.pop("labels")
            right.append(self.inference(**batch).logits.argmax(-1) == labels)
        self.model.train()
        return float(torch.cat(right).float().mean())

    def save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(
            {**state, "scheduler": self.scheduler.state_dict(), "step": self.step}, self.folder / "checkpoint.pt"
        )

    def load(self) -> None:
        state = torch.load(self.folder / "checkpoint.pt", weights_only=False)
        self.training.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.training.setOptimizer(self.optimizer)
        self.step = state["step"]


def trained_by_torch(model: torch.nn.Module, data: Sentences) -> list[float]:
    """The last micro-batch's loss of each step of a plain loop."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    scheduler, losses = schedule_of(optimizer), []
    for start in range(0, STEPS * BATCH * ACCUMULATION, BATCH * ACCUMULATION):
        for part in range(start, start + BATCH * ACCUMULATION, BATCH):
            loss = model(**collated([data[i] for i in range(part, part + BATCH)])).loss
            (loss / ACCUMULATION).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(float(loss.detach()))
    return losses


def equal(model: torch.nn.Module, other: torch.nn.Module) -> None:
    wanted = dict(other.named_parameters())
    for name, value in model.named_parameters():
        torch.testing.assert_close(value.detach().clone(), wanted[name].detach(), rtol=2e-3, atol=2e-4, msg=name)


def test_a_loop_in_the_manner_of_hugging_face_trains_evaluates_and_goes_on(tmp_path: Path) -> None:
    data, plain = Sentences(), classifier().train()
    wanted = trained_by_torch(plain, data)
    first = Trainer(classifier(), data, tmp_path)
    first.evaluate()
    losses = first.train(3)
    first.save()
    after = first.evaluate()
    losses += first.train(3)
    torch.testing.assert_close(losses, wanted, rtol=1e-3, atol=1e-4)
    equal(first.model, plain)
    second = Trainer(classifier(seed=9), data, tmp_path)
    second.load()
    assert second.evaluate() == after
    torch.testing.assert_close(second.train(3), wanted[3:], rtol=1e-3, atol=1e-4)
    equal(second.model, plain)
    with torch.no_grad():
        rows = collated([data[i] for i in range(len(data))])
        right = plain.eval()(**rows).logits.argmax(-1) == rows["labels"]
    assert first.evaluate() == second.evaluate() == pytest.approx(float(right.float().mean()))


def test_hugging_face_s_trainer_itself(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    data, plain = Sentences(), classifier().train()
    wanted = trained_by_torch(plain, data)
    model = classifier()

    class IpuTrainer(transformers.Trainer):
        """Its loop, with the step done by the wrapped model."""

        def create_optimizer(self, model: torch.nn.Module | None = None) -> torch.optim.Optimizer:
            self.optimizer = poptorch.optim.AdamW(self.model.parameters(), lr=5e-3, weight_decay=0.01)
            self.wrapped = poptorch.trainingModel(self.model.train(), options(), self.optimizer)
            self.losses: list[float] = []
            return self.optimizer

        def get_train_dataloader(self) -> torch.utils.data.DataLoader:
            return poptorch.DataLoader(options(), self.train_dataset, batch_size=BATCH, collate_fn=collated)

        def training_step(self, model, inputs, num_items_in_batch=None) -> torch.Tensor:
            self.wrapped.setOptimizer(getattr(self.optimizer, "optimizer", self.optimizer))
            self.losses.append(float(self.wrapped(**inputs).loss))
            return torch.tensor(self.losses[-1])

    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=STEPS, learning_rate=5e-3, warmup_steps=2, lr_scheduler_type="linear", report_to=[],
        max_grad_norm=0.0, use_cpu=True, save_strategy="no", disable_tqdm=True, per_device_train_batch_size=BATCH,
    )  # fmt: skip
    trainer = IpuTrainer(model, arguments, train_dataset=data)
    trainer.train()
    torch.testing.assert_close(trainer.losses, wanted, rtol=1e-3, atol=1e-4)
    equal(model, plain)


def test_lightning(tmp_path: Path) -> None:
    lightning = pytest.importorskip("lightning.pytorch")
    data, plain = Sentences(), classifier().train()
    wanted = trained_by_torch(plain, data)

    class Module(lightning.LightningModule):
        """Its hooks around a wrapped model, which does the step itself."""

        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False
            self.classifier = classifier()
            self.losses: list[float] = []

        def configure_optimizers(self):
            optimizer = poptorch.optim.AdamW(self.classifier.parameters(), lr=5e-3, weight_decay=0.01)
            return {"optimizer": optimizer, "lr_scheduler": schedule_of(optimizer)}

        def on_train_start(self) -> None:
            self.own = self.optimizers(use_pl_optimizer=False)
            self.wrapped = poptorch.trainingModel(self.classifier.train(), options(), self.own)

        def training_step(self, batch: dict[str, torch.Tensor], index: int) -> None:
            loss = self.wrapped(**batch).loss
            self.losses.append(float(loss))
            self.log("loss", float(loss))
            self.lr_schedulers().step()
            self.wrapped.setOptimizer(self.own)

        def on_train_end(self) -> None:
            self.wrapped.destroy()

    module = Module()
    trainer = lightning.Trainer(
        max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, default_root_dir=str(tmp_path),
    )  # fmt: skip
    trainer.fit(module, poptorch.DataLoader(options(), data, batch_size=BATCH, collate_fn=collated))
    torch.testing.assert_close(module.losses, wanted, rtol=1e-3, atol=1e-4)
    assert float(trainer.logged_metrics["loss"]) == pytest.approx(module.losses[-1])
    equal(module.classifier, plain)
    copy.deepcopy(module.classifier)(**collated([data[0]]))
