"""What the host kernels of all families share: the request and its registry, maps as expressions, sliding windows.

``kernels`` is the registry of host kernels, ``epilogues`` that of products that can take a map behind them,
``expressions`` turns elementwise operations into what ``codegen`` compiles, ``windows`` walks the taps of
convolutions and pools.
"""
