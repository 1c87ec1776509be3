"""Files that were judged -> a model in memory: fetched, loaded, dequantised or merged.

Here are torch, transformers and peft; importing this package imports none of them.
"""
