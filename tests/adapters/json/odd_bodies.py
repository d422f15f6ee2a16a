"""JSON of all shapes that cost more to read than to send, and what large requests really hold."""

import base64
import json
import random

BEGIN, END = b'{"model":"m","messages":[', b"]}"


def filled(piece, size, begin=BEGIN, end=END):
    """A request of about `size` bytes, filled with the same piece."""
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def string_of(piece, size):
    return filled(piece, size, BEGIN + b'"', b'"' + END)


def odd_bodies(size):
    """(name, body): bodies of about `size` bytes that are slow to read."""
    yield "objects", filled(b"{},", size, end=b"{}" + END)
    yield "arrays", filled(b"[],", size, end=b"[]" + END)
    yield "numbers", filled(b"1,", size, end=b"1" + END)
    yield "strings", filled(b'"",', size, end=b'""' + END)
    yield "fields", filled(b'"a":1,', size, BEGIN + b"{", b'"b":1}' + END)
    yield "depth", filled(b"[", size, end=b"")
    yield "depth and back", filled(b"[[[[[]]]]],", size, end=b"[]" + END)
    yield "blanks", filled(b" ", size)
    yield "digits", filled(b"1", size)
    yield "fractions", filled(b"0.12345678901234567,", size, end=b"1" + END)
    yield "quotes", string_of(b'\\"', size)
    yield "escapes", string_of(b"\\u0041", size)
    yield "pairs", string_of(b"\\ud83d\\ude00", size)
    yield "two bytes", string_of("é".encode(), size)
    yield "three bytes", string_of("漢a".encode(), size)
    yield "four bytes", string_of("😀".encode(), size)
    yield "one of two bytes", string_of(b"a", size).replace(b"a", "é".encode(), 1)
    yield "letters", string_of(b"a", size)
    yield "media", string_of(b";base64,", size)
    yield "much media", filled(b'";base64,",', size, end=b'""' + END)
    yield "data", filled(b'"data",', size, end=b'""' + END)
    yield "data fields", filled(b'{"data":"iVBORw0KGgo"},', size, end=b"{}" + END)
    yield "model", filled(b"{},", size, b'{"messages":[],"model":[', b"{}]}")
    yield "stream", filled(b"{},", size, b'{"model":"m","messages":[],"stream":[', b"{}]}")
    yield "options", filled(b"{},", size, b'{"model":"m","messages":[],"stream_options":[', b"{}]}")
    yield "no end", filled(b"{},", size, end=b"")
    yield "no JSON", filled(b"}", size, end=b"")
    yield "comma at the end", filled(b"1,", size)


def large_requests():
    """(name, body): as large as clients make them."""
    image = base64.b64encode(b"\x89PNG\r\n\x1a\n" + random.Random(1).randbytes(22_500_000)).decode()
    part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}}
    yield "image of 30 MB", [{"role": "user", "content": [part]}], []
    said = "The harbour has two gauges, one on the old pier and one under the bridge. " * 40
    turns = [{"role": ("user", "assistant")[turn % 2], "content": [{"type": "text", "text": said}]}
             for turn in range(5000)]  # fmt: skip
    yield "conversation of 5000 messages", turns, []
    fields = {f"field_{n}": {"type": "string", "description": said[:80], "enum": ["a", "b", "c"]}
              for n in range(40)}  # fmt: skip
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    tools = [{"type": "function", "function": {"name": f"tool_{n}", "parameters": schema}}
             for n in range(1000)]  # fmt: skip
    yield "1000 tools with large schemas", turns[:1], tools


def encoded(messages, tools):
    more = {"tools": tools} if tools else {}
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def result_of(steps):
    """What steps come to, at one go."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return ended.value
