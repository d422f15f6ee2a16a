"""Malformed bytes, the same in every run."""


def hostile_bytes(data, rng, pieces):
    """Return the data with a few bytes flipped, cut out, doubled, inserted or cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randrange(len(out) + 1), rng.randint(1, 40)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + size]
        elif kind == 2:
            out[at:at] = out[at : at + size]
        elif kind == 3:
            out[at:at] = rng.choice(pieces)
        elif kind == 4:
            found = out.find(rng.choice([b'"', b":", b",", b"{", b"}", b"[", b"\n", b"\r"]), at)
            if found >= 0:
                out[found : found + 1] = rng.choice([b"", b"7", b"\x00", *pieces])
        else:
            del out[at:]
    return bytes(out)
