"""One seed per purpose, independent of call order and of Python's hash randomisation."""

import hashlib


def derive_seed(*purpose: str | int) -> int:
    digest = hashlib.sha256("/".join(map(str, purpose)).encode()).digest()
    return int.from_bytes(digest[:7])
