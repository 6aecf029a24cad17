"""What a program may not ask while it is captured: the values of its tensors. And what to write instead."""

from __future__ import annotations

from typing import NoReturn

from abele.errors import DataDependent

_BRANCH = (
    "Choose between tensors with torch.where, between computations with poptorch.cond, or keep the number a tensor "
    "and do arithmetic with it."
)
_SHAPE = (
    "The size of the result would depend on values: use torch.where or a multiplication by the mask, which keep the "
    "shape, or torch.topk with a fixed number."
)
_HOST = "Return the tensor from the model and read it outside, or keep computing with torch."

OPERATIONS: dict[str, tuple[str, str]] = {
    "_local_scalar_dense": ("The value of a tensor is read (if, while, int(), float(), bool() or .item())", _BRANCH),
    "item": ("The value of a tensor is read (.item())", _BRANCH),
    "is_nonzero": ("The value of a tensor is read (if, while or bool())", _BRANCH),
    "equal": ("Two tensors are compared into a Python bool (torch.equal)", _BRANCH),
    "allclose": ("Two tensors are compared into a Python bool (torch.allclose)", _BRANCH),
    "nonzero": ("The positions of the elements that are not zero are asked for (nonzero, or a mask as index)", _SHAPE),
    "nonzero_numpy": ("The positions of the elements that are not zero are asked for (nonzero)", _SHAPE),
    "masked_select": ("Elements are selected by a mask (masked_select)", _SHAPE),
    "unique": ("The distinct elements of a tensor are asked for (unique)", _SHAPE),
    "_unique2": ("The distinct elements of a tensor are asked for (unique)", _SHAPE),
    "unique_dim": ("The distinct elements of a tensor are asked for (unique)", _SHAPE),
    "unique_consecutive": ("The distinct elements of a tensor are asked for (unique_consecutive)", _SHAPE),
    "repeat_interleave": (
        "Elements are repeated as often as a tensor says (repeat_interleave)",
        "Give the size of the result as output_size, and where to repeat as dim.",
    ),
    "tolist": ("A tensor is turned into Python numbers (.tolist())", _HOST),
    "numpy": ("A tensor is turned into a NumPy array (.numpy())", _HOST),
    "__array__": ("A tensor is turned into a NumPy array", _HOST),
    "__format__": ("The value of a tensor is formatted into a string", "Use poptorch.ipu_print_tensor to print it."),
    "mask_index": ("A tensor of bools is used as an index", _SHAPE),
}

INSTEAD = {
    "linalg_eig": "Compute it outside the model, or use torch.linalg.eigh for a symmetric matrix.",
    "linalg_pinv": "Use torch.linalg.solve or qr, or torch.linalg.svd with the small values cut off.",
    "linalg_lu_factor_ex": "Use torch.linalg.solve, inv or slogdet.",
    "linalg_lu": "Use torch.linalg.solve, inv, slogdet or qr.",
    "_pack_padded_sequence": "Give recurrent layers a padded tensor, and mask the padding in what is made of it.",
    "resize_": "Create a tensor of the new shape.",
    "set_": "Copy the values with copy_ or bind the name to the other tensor.",
}


def refuse(name: str, where: str) -> NoReturn:
    """Raise the error of an operation that asks for values."""
    what, remedy = OPERATIONS[name]
    raise DataDependent(f"{what} while the model is captured, when it has none", where=where, remedy=remedy)
