"""Token counts without a vocabulary: a bound for holds, an estimate, a weight for journal marks.

``input_bound_tokens`` is cheap and on every call's path; ``estimate_tokens`` takes some
milliseconds for each 40 kB and belongs in a thread; ``output_weight`` runs for every delta of a
stream. The weights are a least-squares fit against the o200k vocabulary on prose in twelve
languages, source code, JSON and licences; the error stays within 10 % on almost all of them.
"""

import re

from adapters.json.structure import Steps, end_of_piece

# The documented rule for base64 media in the bound. An image costs at most IMAGE_BOUND_TOKENS at
# the known vendors. Other media (audio, video, documents) cost that plus one token for every
# MEDIA_BASE64_CHARS_PER_TOKEN characters.
IMAGE_BOUND_TOKENS = 4_800
MEDIA_BASE64_CHARS_PER_TOKEN = 8
# The estimate for a picture of ordinary size.
IMAGE_TYPICAL_TOKENS = 1_200

MIN_MEDIA_CHARS = 1024  # shorter base64 counts as text
_MEDIA_FROM_BODY_BYTES = 4096  # smaller bodies cannot hold relevant media
_BASE64_SAMPLE_BYTES = 256
_PIECE_BYTES = 65_536  # of large input: searched within a few ms

# The start of a file's base64: the first bytes of its format.
_IMAGES = (b"iVBORw0KGgo", b"/9j/", b"R0lGOD", b"UklGR")
_OTHERS = (b"JVBERi0", b"SUQz", b"//uQ", b"//vQ", b"//NE", b"T2dnUw", b"ZkxhQ", b"GkXfo")
_WAV = b"QVZF"  # of WAVE, after the RIFF header that WebP also has

_NOT_BASE64 = re.compile(rb"[^A-Za-z0-9+/=_\\-]")
_LONG_BASE64 = re.compile(r"(?<![\w+/-])[\w+/-]{1024,}={0,2}", re.ASCII)
_UNICODE_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")

_WEIGHTS: tuple[tuple[re.Pattern[str], float], ...] = tuple(
    (re.compile(pattern), weight)
    for pattern, weight in (
        (r"[A-Za-z\u00c0-\u024f]+(?:'[a-z]+)?", 0.9),  # a word
        (r"[a-z][A-Z]", 0.34),  # camel case inside it
        (r"[A-Za-z]{8}", 0.42),  # every eight letters of a long one
        (r"[A-Z]{4}", 2.2),
        (r"[\u00c0-\u024f]", 1.37),  # accents split words
        (r"[0-9]{1,3}", 1.0),
        (r"[!-/:-@\[-`{-~]{1,3}", 1.06),
        (r"\n\s*|(?<=\S)[ \t]{2,}", 0.97),
        (r"[\u0370-\u052f]{1,4}", 0.96),  # Greek, Cyrillic
        (r"[\u0530-\u1fff]{1,2}", 1.0),  # Arabic, Hebrew, scripts of India and around
        (r"[\u2000-\u2fff\u3000-\u303f\uff00-\uff60]", 0.6),
        (r"[\u3040-\u30ff]", 0.69),
        (r"[\u3400-\u9fff]", 0.76),
        (r"[\uac00-\ud7af]", 0.66),
        (r"[\U00010000-\U0010ffff]", 1.5),
        (r"[\ud800-\udfff]", 0.75),  # halves of the above, from escapes
    )
)

WEIGHT_PER_TOKEN = 16
ASCII_WEIGHT = 4  # four characters to a token, the mean of prose and code
_OTHER_WEIGHT = 5  # letters of other alphabets
_WIDE_EXTRA_WEIGHT = 7  # extra for a Chinese, Japanese or Korean character or an emoji
_WIDE = re.compile("[\u2e80-\uffff\U00010000-\U0010ffff]+")


def input_bound_tokens(body: bytes) -> int:
    """Return more tokens than are likely to be billed for the input. A rule covers media."""
    text_bytes = len(body)
    tokens = 0
    if text_bytes >= _MEDIA_FROM_BODY_BYTES:
        for start, end in _media(body, 0, text_bytes):
            text_bytes -= end - start
            tokens += _media_bound_tokens(body, start, end)
    return tokens + text_bytes // 2


def input_bound_steps(body: bytes) -> Steps[int]:
    """Return the same as ``input_bound_tokens`` for a large body, in steps."""
    text_bytes = len(body)
    tokens = 0
    for at in range(0, len(body), _PIECE_BYTES):
        for start, end in _media(body, at, at + _PIECE_BYTES):
            text_bytes -= end - start
            tokens += _media_bound_tokens(body, start, end)
        yield False
    return tokens + text_bytes // 2


def _media_bound_tokens(body: bytes, start: int, end: int) -> int:
    if _is_image(_head(body, start)):
        return IMAGE_BOUND_TOKENS
    return IMAGE_BOUND_TOKENS + (end - start) // MEDIA_BASE64_CHARS_PER_TOKEN


def _media(body: bytes, begin: int, stop: int) -> list[tuple[int, int]]:
    """Return the places of base64 media in the strings of a JSON body, for markers that start in
    body[begin:stop]. Each string is searched for one marker only, so that a string full of markers
    costs no more than another."""
    places: list[tuple[int, int]] = []
    for marker, any_format in ((b";base64,", True), (b'"data"', False)):
        stop_of_marker = stop + len(marker) - 1
        at = body.find(marker, begin, stop_of_marker)
        while at >= 0:
            start = at + len(marker) if any_format else body.find(b'"', at + len(marker)) + 1
            end = body.find(b'"', start)
            if end < 0 or start == 0:
                break
            if _is_media(body, start, end, any_format):
                places.append((start, end))
                at = end
            elif any_format:
                at = end - 1
            at = body.find(marker, at + 1, stop_of_marker)
    return places


def _is_media(body: bytes, start: int, end: int, any_format: bool) -> bool:
    """Return true for base64 of a file, judged by samples of its start and end."""
    if end - start < MIN_MEDIA_CHARS:
        return False
    head = _head(body, start)
    if not any_format and not head.startswith(_IMAGES + _OTHERS):
        return False
    # Text disguised as media for a cheaper hold has blanks; memchr searches all of it.
    if body.find(b" ", start, end) >= 0:
        return False
    last = body[end - _BASE64_SAMPLE_BYTES : end]
    return _NOT_BASE64.search(head) is None and _NOT_BASE64.search(last) is None


def _head(body: bytes, start: int) -> bytes:
    # Some JSON writers escape every slash.
    return body[start : start + _BASE64_SAMPLE_BYTES].replace(b"\\/", b"/")


def _is_image(head: bytes) -> bool:
    return head.startswith(_IMAGES) and head[12:16] != _WAV


def estimate_tokens(text: str) -> int:
    """Return the tokens of ``text``, within 10 %. Long base64 counts as media."""
    media_tokens = 0

    def count_media(match: re.Match[str]) -> str:
        nonlocal media_tokens
        media_tokens += IMAGE_TYPICAL_TOKENS
        return " "

    if len(text) >= MIN_MEDIA_CHARS:
        text = _LONG_BASE64.sub(count_media, text)
    weight = sum(len(pattern.findall(text)) * each for pattern, each in _WEIGHTS)
    return media_tokens + (round(weight) or bool(text))


def estimate_body_tokens(body: bytes) -> int:
    """Return the input tokens of a JSON request body: like ``estimate_tokens``, with JSON escapes
    decoded. It works in pieces because a running regular expression holds the interpreter lock."""
    tokens, at, in_media = 0, 0, False
    while at < len(body):
        end = end_of_piece(body, at + _PIECE_BYTES)
        piece = body[at:end]
        other = _NOT_BASE64.search(piece)
        if other is None and len(piece) >= MIN_MEDIA_CHARS:
            tokens += 0 if in_media else IMAGE_TYPICAL_TOKENS
            in_media = True
        else:
            tokens += _estimate_piece(piece[other.start() :] if other and in_media else piece)
            in_media = _NOT_BASE64.search(piece[-MIN_MEDIA_CHARS:]) is None
        at = end
    return tokens


def _estimate_piece(piece: bytes) -> int:
    text = piece.decode(errors="replace")
    for escape, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"')):
        text = text.replace(escape, meant)
    return estimate_tokens(_UNICODE_ESCAPE.sub(_unescape, text))


def _unescape(match: re.Match[str]) -> str:
    return chr(int(match[1], 16))


def output_weight(text: str) -> int:
    """Return the weight of a chunk of output, in sixteenths of a token."""
    if text.isascii():
        return ASCII_WEIGHT * len(text)
    return _OTHER_WEIGHT * len(text) + _WIDE_EXTRA_WEIGHT * len("".join(_WIDE.findall(text)))


def body_weight(body: bytes) -> int:
    """Return the ``output_weight`` of a request body in UTF-8."""
    return ASCII_WEIGHT * len(body) if body.isascii() else output_weight(body.decode())


def weight_steps(text: bytes, start: int, end: int) -> Steps[int]:
    """Return the ``output_weight`` of text[start:end], which is long UTF-8, in steps."""
    weight = 0
    while start < end:
        stop = min(end_of_piece(text, start + _PIECE_BYTES), end)
        weight += output_weight(text[start:stop].decode(errors="replace"))
        start = stop
        yield False
    return weight


def output_units(text: str) -> int:
    """Return a cheap token count for a chunk of output, rounded up."""
    return tokens_of_weight(output_weight(text))


def tokens_of_weight(weight: int) -> int:
    """Return the whole tokens of a sum of ``output_weight`` values, rounded up."""
    return -(-weight // WEIGHT_PER_TOKEN)
