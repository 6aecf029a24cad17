"""What Abele must reach, measured: ``make bench``, or ``python -m benchmarks [NAME ...]``.

The runner (``__main__``) finds the modules of this folder by itself. One with ``benchmarks()`` gives a list of
`benchmarks.base.Benchmark`; one with ``main()`` gives a list of `benchmarks.rounds.Result`, ours against torch.
"""
