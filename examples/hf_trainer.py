"""Hugging Face's Trainer: the optimizer goes into `optimizers=`, and `compute_loss` tells it the loss.

The Trainer adds its own scheduler.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from cmalight import Controlled


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Six tokens; the label says whether the first is one of the upper half."""

    def __init__(self, rows: int) -> None:
        self.tokens = torch.randint(0, 20, (rows, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[row], "labels": (self.tokens[row, 0] > 9).long()}


class WatchedTrainer(Trainer):
    """The Trainer calls `step()` without the loss, so the optimizer is told beforehand."""

    def __init__(self, *arguments: Any, optimizers: tuple[Controlled, Any], **options: Any) -> None:
        super().__init__(*arguments, optimizers=optimizers, **options)
        self.watched = optimizers[0]  # the Trainer wraps it later

    def compute_loss(self, model: torch.nn.Module, inputs: dict[str, Any], **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, **options)
        if model.training:
            self.watched.observe(loss)
        return loss


def main() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )  # tiny, with random weights
    model = BertForSequenceClassification(config)
    dataset = Sentences(512)
    optimizer = Controlled(torch.optim.AdamW(model.parameters(), lr=3e-3), model)
    optimizer.on_report(print)
    arguments = TrainingArguments(
        "hf_trainer", per_device_train_batch_size=16, num_train_epochs=6, use_cpu=True, report_to=[], disable_tqdm=True
    )
    trainer = WatchedTrainer(model, arguments, train_dataset=dataset, optimizers=(optimizer, None))
    trainer.train()
    print(f"final loss {trainer.evaluate(dataset)['eval_loss']:.5f}")


if __name__ == "__main__":
    main()
