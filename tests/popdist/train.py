"""A program for ``poprun`` in tests: trains, and writes what it got to the file of its first argument and its rank."""

import json
import sys

import torch

import popdist
import popdist.poptorch
import poptorch


def main(file: str, steps: int, replicas: int) -> None:
    popdist.init()
    options = (
        popdist.poptorch.Options() if popdist.isPopdistEnvSet() else poptorch.Options().replicationFactor(replicas)
    )
    options.randomSeed(3).outputMode(poptorch.OutputMode.All)
    options.Training.gradientAccumulation(2)
    torch.manual_seed(4)
    layers = torch.nn.Linear(6, 16), torch.nn.Tanh(), torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)
    model = Loss(torch.nn.Sequential(*layers))
    optimizer = poptorch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    training = poptorch.trainingModel(model, options, optimizer)
    first, own = popdist.getReplicaIndexOffset(), options.replication_factor
    draw, losses = torch.Generator().manual_seed(5), []
    for _ in range(steps):
        x, y = torch.randn(2, replicas, 4, 6, generator=draw), torch.randint(0, 3, (2, replicas, 4), generator=draw)
        _, loss = training(*(t[:, first : first + own].flatten(0, 2) for t in (x, y)))
        losses.append(loss.reshape(2, own).tolist())
    weight = model.model[0].weight.tolist()
    with open(f"{file}.{popdist.getInstanceIndex()}", "w") as target:
        json.dump({"losses": losses, "weight": weight, "processes": options.Distributed.numProcesses}, target)
    print("trained", popdist.getInstanceIndex())


class Loss(torch.nn.Module):
    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = self.model(x)
        return made, torch.nn.functional.cross_entropy(made, y)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
