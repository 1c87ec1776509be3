"""From the words after `--ckpt` to a model that can be scored with.

`locate` finds the place; `layouts` says what is there, of `folder`, `adapter` and `gguf`, without
torch, or the command of `remedies` that converts it; `load` opens it by way of `loading`.
`conversion` writes what must not be opened as it stands as a folder that can. Importing this
package imports none of them.
"""
