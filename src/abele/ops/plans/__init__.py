"""What the plans of all families share, so that no family needs another.

``planning`` is the registry of plans. ``layouts`` chooses how tensors lie, ``search`` splits an iteration space by a
cost. ``products``, ``partials`` and ``sharing`` charge products, sums of their parts, and operands that several tiles
read. ``halo`` cuts the operands of windows, ``rows`` plans operations over rows, ``chains`` those element by element;
``vertices`` is what all vertex kinds have in common.
"""
