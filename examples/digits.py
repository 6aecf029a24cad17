"""Train a small convolutional network on scikit-learn's handwritten digits: an ordinary PopTorch program.

    abele run --system m2000 --system bow-2000 --report out/digits examples/digits.py

It also runs as ``python examples/digits.py``, and with the options that ``abele`` advises. The losses of the first
1,600 pictures (fifty updates, where the options change nothing) are compared with those of plain PyTorch.
"""

import copy

import torch
from sklearn.datasets import load_digits
from torch import nn

import poptorch

BATCH = 32
UPDATES = 540
COMPARED = 1600


class Classifier(nn.Module):
    """Two convolutions and two linear layers; returns the loss too when it is given labels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Sequential(nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Linear(64, 10))
        self.loss = nn.CrossEntropyLoss()

    def forward(self, images, labels=None):
        logits = self.head(self.features(images))
        if labels is None:
            return logits
        return logits, self.loss(logits, labels)


def digits():
    """Training and test sets: images ``[1, 8, 8]`` in 0..1 and labels."""
    data = load_digits()
    images = torch.tensor(data.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    train, test = order[:1440], order[1440:]
    return (
        torch.utils.data.TensorDataset(images[train], labels[train]),
        torch.utils.data.TensorDataset(images[test], labels[test]),
    )


def plain_losses(model, batches):
    """The losses of the same updates in plain PyTorch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        _, loss = model(images, labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


def main() -> tuple[float, float]:
    """Train and test; returns the accuracy in percent and the largest relative difference of the losses."""
    torch.manual_seed(0)
    model = Classifier()
    twin = copy.deepcopy(model)
    train, test = digits()

    options = poptorch.Options()
    options.randomSeed(0)
    options.outputMode(poptorch.OutputMode.All)  # the loss of every micro-batch
    loader = poptorch.DataLoader(options, train, batch_size=BATCH, shuffle=True)
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)

    seen, losses, epoch = [], [], 0
    while len(losses) < UPDATES:
        epoch += 1
        for images, labels in loader:
            _, loss = training(images, labels)
            # A call makes an update in each device iteration; its loss is the mean of the micro-batches.
            losses += loss.reshape(options.device_iterations, -1).mean(1).tolist()
            if sum(len(batch) for batch, _ in seen) < COMPARED:
                chunks = [tensor.chunk(options.device_iterations) for tensor in (images, labels)]
                seen += zip(*chunks, strict=True)
        print(f"epoch {epoch:2d}  loss {losses[-1]:.4f}")

    difference = (torch.tensor(losses[: len(seen)]) / plain_losses(twin, seen) - 1).abs().max().item()
    print(f"largest relative difference from plain PyTorch over {len(seen)} updates: {difference:.1e}")

    model.eval()
    inference = poptorch.inferenceModel(model, poptorch.Options())
    images, labels = test[:320]
    correct = sum(
        (inference(images[i : i + BATCH]).argmax(1) == labels[i : i + BATCH]).sum().item()
        for i in range(0, len(labels), BATCH)
    )
    accuracy = 100 * correct / len(labels)
    print(f"test accuracy: {accuracy:.1f} %")
    training.destroy()
    inference.destroy()
    return accuracy, difference


if __name__ == "__main__":
    reached, apart = main()
    if reached < 97 or apart > 1e-4:
        raise SystemExit(f"expected at least 97 % and losses within 1e-4, got {reached:.1f} % and {apart:.1e}")
