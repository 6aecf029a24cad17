"""The programs that ``poptorch_programs.py`` runs: where they are, what they need, what they must print."""

from __future__ import annotations

from dataclasses import dataclass, field

TESTS = ("-m", "pytest", "-q", "--noconftest", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Program:
    """One program of a checkout.

    Attributes:
        name: for ``--only``.
        checkout: ``poptorch`` or ``examples``.
        folder: copied whole; the program runs from the copy.
        command: what Python gets, as typed in the folder.
        exercises, needs: for the table.
        expects: patterns that what it prints must have; with a bound, the last number found is at least that.
        hardware: whether it runs only where hardware is said to be there.
        inside: folder inside of the copy to run it from.
        copies: (target, source) inside the copy, for files that the program looks for elsewhere.
        pictures_here: whether it looks for MNIST in its own folder.
        graphs: whether it gets generated graphs in the place of PyTorch Geometric's downloads.
        driver: a file ``driver.py`` beside the program, for models that come without a program for made-up data.
        environment: variables.
        seconds: limit.
    """

    name: str
    checkout: str
    folder: str
    command: tuple[str, ...]
    exercises: str
    needs: str = ""
    expects: tuple[str | tuple[str, float], ...] = ()
    hardware: bool = False
    inside: str = "."
    copies: tuple[tuple[str, str], ...] = ()
    pictures_here: bool = False
    graphs: bool = False
    driver: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    seconds: int = 300

    @property
    def shown(self) -> str:
        """As the table names it."""
        if self.command[: len(TESTS)] == TESTS:
            return f"`pytest {' '.join(f'{self.folder}/{test}' for test in self.command[len(TESTS) :])}`"
        return f"`{self.folder}/{' '.join(self.command)}`"


GUIDE = "docs/user_guide"
PYTORCH = "tutorials/tutorials/pytorch"
PYG = "tutorials/tutorials/pytorch_geometric"
PICTURES = "torchvision, tqdm; generated pictures"


GROUPED = """
import numpy, torch, runpy
done = runpy.run_path("replica_grouped_weights.py")
x, w, losses = torch.tensor(done["prob_X"]), torch.tensor(done["prob_W_init"], requires_grad=True), []
for _ in range(done["prob_steps"]):
    loss = ((x @ w) ** 2).mean()
    losses.append(loss.item())
    (slope,) = torch.autograd.grad(loss, w)
    w = (w - 0.01 * slope).detach().requires_grad_()
numpy.testing.assert_allclose(done["pt_losses"], losses, atol=1e-6)
numpy.testing.assert_allclose(done["pt_W_final"], w.detach(), atol=1e-6)
print("equal to one IPU")
"""


def _guide(name: str, exercises: str, *expects: str, command: tuple[str, ...] = (), **more: object) -> Program:
    run = command or (f"{name}.py",)
    return Program(name, "poptorch", GUIDE, run, exercises, expects=expects, **more)  # type: ignore[arg-type]


def _pipelining(name: str, exercises: str, *flags: str) -> Program:
    return Program(
        f"pipelining {name}",
        "examples",
        f"{PYTORCH}/pipelining",
        ("mnist_pipeline.py", *flags),
        exercises,
        PICTURES,
        ((r"Accuracy on test set: ([\d.]+)%", 80.0),),
    )


SECTION_3 = (
    Program("simple_adder", "poptorch", "examples", ("simple_adder.py",), "inference", expects=("Success",)),
    Program("lstm", "poptorch", "examples", ("lstm.py",), "LSTM", expects=(r"tensor\(\[\[\[",)),
    _guide("trainingModel", "training, copies of weights, eval and train", r"799: \d\.\d+e-\d+"),
    _guide(
        "api",
        "printing, losses, optimizer state, a configuration file",
        r"loss = 0\.00",
        r"Bias after training",
        needs="`tmp/poptorch.conf`, which the folder has beside the program",
        copies=(("tmp/poptorch.conf", "poptorch.conf"),),
    ),
    _guide("sumAnchorReturnType", "OutputMode.Sum, gradient accumulation, DataLoader", r"Accuracy: [\d.]+%"),
    _guide("buffers", "buffers, frozen attributes"),
    _guide("phased_execution", "phases, blocks, automatic numbers"),
    _guide("debugging", "names of tensors, anchored gradients"),
    _guide(
        "device_iterations",
        "batching, replicas, asynchronous loading",
        r"6 1, tensor",
        needs="`ABELE_IPU_HARDWARE=1`",
        hardware=True,
    ),
    _guide("precompilation", "export, load, offline", needs="`ABELE_IPU_HARDWARE=1`", hardware=True),
    _guide(
        "replica_grouped_weights",
        "weights that differ among replicas",
        "equal to one IPU",
        needs="eight IPUs: `ABELE_SYSTEM=bow-pod16`",
        environment={"ABELE_SYSTEM": "bow-pod16"},
        driver=GROUPED,
        command=("driver.py",),
    ),
    Program(
        "data_loading",
        "examples",
        f"{PYTORCH}/efficient_data_loading",
        ("tuto_data_loading.py", "--replicas", "2"),
        "asynchronous loading with 32 processes",
        expects=(r"IPU throughput: ([\d.]+)",),
    ),
    Program(
        "data_loading synthetic",
        "examples",
        f"{PYTORCH}/efficient_data_loading",
        ("tuto_data_loading.py", "--synthetic-data"),
        "data made up on the device",
        expects=(r"IPU throughput: ([\d.]+)",),
    ),
    Program(
        "mnist",
        "examples",
        "tutorials/simple_applications/pytorch/mnist",
        ("mnist_poptorch_code_only.py",),
        "OutputMode.All, many device iterations",
        PICTURES,
        ((r"Accuracy on test set: ([\d.]+)%", 80.0),),
    ),
    Program(
        "basics",
        "examples",
        f"{PYTORCH}/basics",
        ("walkthrough_code_only.py",),
        "training, saving and loading weights, inference",
        PICTURES + "; scikit-learn, matplotlib, pillow",
        ((r"Eval accuracy: ([\d.]+)%", 80.0), r"IPU predicted class: \w+", r"CPU predicted class: \w+"),
    ),
    Program(
        "observing_tensors",
        "examples",
        f"{PYTORCH}/observing_tensors",
        ("anchor_tensor_example.py",),
        "anchored gradients, names of tensors",
        PICTURES + "; matplotlib",
        (r"Loss: [\d.]+", r"Saved histogram"),
    ),
    Program(
        "mixed_precision",
        "examples",
        f"{PYTORCH}/mixed_precision",
        (
            "walkthrough_code_only.py",
            "--execution-half",
            "--optimizer-half",
            "--stochastic-rounding",
            "--partials-half",
        ),
        "half, AdamW with loss scaling, stochastic rounding, partials",
        PICTURES,
        ((r"Eval accuracy on IPU: ([\d.]+)%", 60.0),),
        seconds=600,
    ),
    _pipelining("pipelined", "a pipeline over four IPUs", "--strategy", "pipelined"),
    _pipelining("sharded", "a model cut over four IPUs", "--strategy", "sharded"),
    _pipelining("offloaded", "a pipeline, optimizer state in streaming memory", "--offload-optimiser"),
)

GRAPHS = "torch_geometric; generated graphs; tqdm, matplotlib (tabulate for GIN)"


def _tests(name: str, folder: str, files: tuple[str, ...], exercises: str, needs: str = "") -> Program:
    return Program(name, "examples", folder, (*TESTS, *files), exercises, needs, (r"\d+ passed",), seconds=400)


def _graphs(name: str, folder: str, file: str, exercises: str, *expects: str | tuple[str, float]) -> Program:
    return Program(name, "examples", folder, (file,), exercises, GRAPHS, expects, graphs=True, seconds=400)


def _guide_mnist(strategy: str) -> Program:
    return Program(
        f"guide mnist {strategy}",
        "poptorch",
        GUIDE,
        ("mnist.py", "--strategy", strategy),
        f"a classifier, {strategy}",
        PICTURES,
        ((r"Accuracy on test set: ([\d.]+)%", 80.0),),
        pictures_here=True,
    )


MORE = (
    _guide("poptorch_training_simple", "training on one number", r"Parameter containing"),
    *(_guide_mnist(strategy) for strategy in ("plain", "pipelined", "phased")),
    _tests("tgn", "gnn/tgn/pytorch", ("test/test_buffer.py",), "a memory that is a buffer"),
    _tests("nbfnet", "gnn/nbfnet/pytorch_geometric", ("tests/test_utils.py",), "batched selection by index"),
    _tests("gpt2 loss", "nlp/gpt2/pytorch", ("tests/loss_seralize_test.py",), "serialised products, a pipeline, half"),
    _tests(
        "yolo backbone",
        "vision/yolo_v4/pytorch",
        ("tests/backbone_test.py",),
        "a large convolutional network",
        "torchvision",
    ),
    _tests("yolo neck", "vision/yolo_v4/pytorch", ("tests/neck_test.py",), "upsampling, concatenation", "torchvision"),
    _graphs(
        "graphs at a glance",
        f"{PYG}/1_at_a_glance",
        "1_at_a_glance_code_only.py",
        "GCN, a loader of fixed size",
        r"next\(iter\(ipu_dataloader\)\) = DataBatch",
        r"Epoch: 5, Loss: [\d.]+",
    ),
    _graphs(
        "graphs worked example",
        f"{PYG}/2_a_worked_example",
        "2_a_worked_example_code_only.py",
        "classes of nodes (seven)",
        (r"Test accuracy: ([\d.]+)%", 20.0),  # of its random start: 27 to 98 in 13 runs; guessing gives 14
    ),
    _graphs(
        "graphs packing",
        f"{PYG}/4_small_graph_batching_with_packing",
        "4_small_graph_batching_with_packing_code_only.py",
        "stream packing; its accuracy is over the graphs trained on: 0.2533 is all 38 of the test",
        (r"accuracy = ([\d.]+)", 0.24),
    ),
    _graphs(
        "gin",
        "gnn/message_passing/pytorch_geometric",
        "molecular_property_prediction_with_gin_code_only.py",
        "GIN on packed graphs",
        (r"[Aa]ccuracy\D*([\d.]+)", 0.5),
    ),
)
"""Programs beyond those fifteen."""

PROGRAMS = (*SECTION_3, *MORE)
