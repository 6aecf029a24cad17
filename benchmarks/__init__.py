"""What Abele must reach, measured: ``make bench``, or ``python -m benchmarks [NAME ...]``.

Each module of this folder has a function ``benchmarks()`` that gives a list of `benchmarks.base.Benchmark`; the
runner (``__main__``) finds the modules by itself. Times are CPU time, medians of interleaved rounds.
"""
