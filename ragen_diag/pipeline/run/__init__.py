"""A whole run: its folder, the scorer of each step, and one kept result per step.

layout   a run folder -> its rollouts, and which checkpoint scores which step
store    what is kept of a step, so that no step is scored twice
opened   what steps share: checkpoint, fingerprints, tags
walk     all steps in order -> a point per step
details  a step -> the groups and responses to look into
texts    two steps -> what changed in the texts
"""
