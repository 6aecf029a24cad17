"""Torch's operations, one by one and in random modules, held against torch in double precision."""
