"""From numbers to words: what voids a verdict, what a reader should know, and which regime it is.

thresholds   every cut, with its source
evidence     what is known about one step
findings     the form of a finding, and the order of those that void a verdict
artefacts    what looks like a regime and is none
remarks      what should be known beside the verdict
regimes      the verdict
"""
