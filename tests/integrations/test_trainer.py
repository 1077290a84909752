"""Hugging Face's Trainer with our optimizer: trains, saves, resumes with equal weights."""

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import DataLoader, Dataset

from cmalight import Auto, Controlled, Objective

transformers = pytest.importorskip("transformers")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the library's own dependencies
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
BATCH, EPOCHS, STEPS = 8, 3, 24


class Rows(Dataset):
    """Six tokens; the label says whether the first is a high one."""

    def __init__(self):
        self.tokens = torch.randint(0, 20, (64, 6), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, number):
        tokens = self.tokens[number]
        return {"input_ids": tokens, "labels": (tokens[0] > 9).long()}


def bert():
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=8,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def objective_of(model):
    loader = DataLoader(Rows(), batch_size=BATCH, collate_fn=transformers.default_data_collator)
    return Objective(model, None, loader, forward=lambda model, batch: (model(**batch).loss, len(batch["labels"])))


class Watched(transformers.Trainer):
    def compute_loss(self, model, inputs, **options):
        loss = super().compute_loss(model, inputs, **options)
        if model.training:
            self.watched.observe(loss)
        return loss


def trainer(folder, model, optimizer, scheduler=None, **options):
    arguments = transformers.TrainingArguments(
        str(folder), per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS, save_steps=8, use_cpu=True,
        report_to=[], disable_tqdm=True, seed=0, dataloader_pin_memory=False, **options,
    )  # fmt: skip
    made = Watched(model, arguments, train_dataset=Rows(), optimizers=(optimizer, scheduler))
    made.watched = optimizer
    return made


def made(folder, *, scheduled=False, **options):
    """A window of 5 steps is open after the 8 steps of the first checkpoint."""
    model = bert()
    base = torch.optim.AdamW(model.parameters(), lr=1e-2)
    optimizer = Controlled(base, model, objective=objective_of(model))
    scheduler = CosineAnnealingLR(optimizer, STEPS) if scheduled else None
    return model, optimizer, trainer(folder, model, optimizer, scheduler, **options)


@pytest.mark.parametrize("scheduled", [False, True], ids=["its-own-scheduler", "ours"])
def test_it_trains_and_resumes_from_a_checkpoint_with_equal_weights(tmp_path, scheduled):
    model, optimizer, run = made(tmp_path / "whole", scheduled=scheduled)
    before = optimizer.objective()
    run.train()
    assert optimizer.steps == STEPS
    assert optimizer.objective() < 0.7 * before
    resumed, again, run = made(tmp_path / "resumed", scheduled=scheduled)
    run.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-8"))
    assert again.steps == STEPS
    assert again.report == optimizer.report
    for (name, value), other in zip(resumed.state_dict().items(), model.state_dict().values(), strict=True):
        assert torch.equal(value, other), name


def test_accumulation_clipping_and_bfloat16_are_the_trainers(tmp_path):
    _, optimizer, run = made(tmp_path, gradient_accumulation_steps=2, max_grad_norm=0.5, bf16=True)
    run.train()
    assert optimizer.steps == STEPS // 2
    assert optimizer.scale == 1.0


@pytest.mark.filterwarnings("ignore:Auto has total_steps or progress")
def test_auto_has_its_own_schedule_where_the_trainers_is_constant(tmp_path):
    model = bert()
    optimizer = Auto(model, objective=objective_of(model), total_steps=STEPS, lr=3e-3)
    before = optimizer.objective()
    trainer(tmp_path, model, optimizer, lr_scheduler_type="constant").train()
    assert optimizer.param_groups[0]["lr"] == 3e-3
    assert optimizer.last_lr < 1e-3
    assert optimizer.objective() < before
