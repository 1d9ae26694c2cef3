"""Equal-cost multipath: which of several equal next hops a 5-tuple takes."""

import hashlib
from typing import Final

SALT: Final = b"skeletonhunter"
DIGEST_BYTES: Final = 8


def flow_hash(src: bytes, dst: bytes, entropy: bytes) -> int:
    """Return the hash of a 5-tuple; the same for both directions.

    `src` and `dst` are address and port as they stand in the header. They are
    put in order before hashing, so that a reply, which keeps the entropy of its
    request, crosses the same links: a loss then speaks about one path, not two.
    Real switches do the same where "symmetric hashing" is configured. A
    cryptographic hash, since CRCs are linear and would send consecutive entropy
    numbers to few of the next hops; it is computed once per 5-tuple.
    """
    low, high = (src, dst) if src <= dst else (dst, src)
    digest = hashlib.blake2b(low + high + entropy, digest_size=DIGEST_BYTES, key=SALT)
    return int.from_bytes(digest.digest())
