"""Hugging Face's Trainer: the optimizer goes into `optimizers=`; the Trainer adds its own scheduler."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

from cmalight import Controlled, Objective


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Six tokens; the label says whether the first is one of the upper half."""

    def __init__(self, rows: int) -> None:
        self.tokens = torch.randint(0, 20, (rows, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, row: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[row], "labels": (self.tokens[row, 0] > 9).long()}


def main() -> None:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )  # tiny, with random weights
    model = BertForSequenceClassification(config)
    dataset = Sentences(512)
    loader = DataLoader(dataset, batch_size=16, collate_fn=default_data_collator)
    objective = Objective(model, None, loader, forward=lambda model, batch: (model(**batch).loss, len(batch["labels"])))
    optimizer = Controlled(torch.optim.AdamW(model.parameters(), lr=3e-3), objective)
    optimizer.on_report = print
    arguments = TrainingArguments(
        "hf_trainer", per_device_train_batch_size=16, num_train_epochs=6, use_cpu=True, report_to=[], disable_tqdm=True
    )
    Trainer(model, arguments, train_dataset=dataset, optimizers=(optimizer, None)).train()
    optimizer.judge()
    print(f"final loss {objective():.5f}")


if __name__ == "__main__":
    main()
