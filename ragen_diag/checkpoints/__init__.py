"""From the words after `--ckpt` to a model that can be scored with.

`locate` finds the folder, `layouts` and `folder` judge its files without torch, `load` opens it.
Importing this package imports none of them.
"""
