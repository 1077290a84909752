"""A ResNet with BatchNorm in mixed precision: bfloat16 on a CPU, float16 with a GradScaler on a GPU.

An undo restores BatchNorm's statistics, too. A step that the scaler skips is no step.
"""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from cmalight import Controlled, Objective
from cmalight.models import resnet

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
DTYPE = torch.float16 if DEVICE == "cuda" else torch.bfloat16
LOSS = nn.CrossEntropyLoss()
EPOCHS = 4


def pictures(count: int = 32) -> tuple[Tensor, Tensor]:
    """Noise with a bright quarter; which one is the class."""
    target = torch.randint(4, (count,))
    images = 0.5 * torch.randn(count, 3, 8, 8)
    for image, quarter in zip(images, target.tolist(), strict=True):
        row, column = divmod(quarter, 2)
        image[:, 4 * row : 4 * row + 4, 4 * column : 4 * column + 4] += 1.0
    return images, target


def forward(model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, int]:
    """Training and evaluation call the same function, so that what is evaluated is what is trained."""
    images, target = (part.to(DEVICE) for part in batch)
    with torch.autocast(DEVICE, dtype=DTYPE):
        return LOSS(model(images), target), len(target)


def main() -> None:
    torch.manual_seed(0)
    loader = DataLoader(TensorDataset(*pictures()), batch_size=16, shuffle=True)
    model = resnet(18, classes=4).to(DEVICE)
    objective = Objective(model, None, loader, forward=forward)
    base = torch.optim.AdamW(model.parameters(), lr=3e-3)
    optimizer = Controlled(base, model, objective=objective, total_steps=EPOCHS * len(loader))
    scaler = torch.amp.GradScaler(DEVICE, enabled=DTYPE is torch.float16)
    for number in range(EPOCHS):
        for batch in loader:
            loss, _ = forward(model, batch)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            scaler.step(optimizer, loss)
            scaler.update()
            optimizer.zero_grad()
        print(f"epoch {number}  {optimizer.report}", flush=True)
    print(f"final loss {objective():.5f}")


if __name__ == "__main__":
    main()
