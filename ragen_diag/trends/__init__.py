"""One quantity over the steps of one run: onsets, lead times, correlations. numpy only.

series       values at steps, with intervals and segments
blocks       a series in few enough pieces to fit
odd          single steps that stand out, to be left aside
ramp         the family of fits: a level, a way, another level
onset        a series -> when it left its level, or that it did not
lead         two onsets -> which came first, by how much
ranks        values -> ranks
correlation  two series -> rank correlation with an interval
"""
