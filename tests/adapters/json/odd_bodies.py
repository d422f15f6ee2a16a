"""JSON of all shapes that cost more to read than to send, and the shapes of real large requests."""

import base64
import json
import random
import time

BEGIN, END = b'{"model":"m","messages":[', b"]}"


def filled(piece, size, begin=BEGIN, end=END):
    """Return a request of about `size` bytes, filled with repetitions of a piece."""
    return begin + piece * ((size - len(begin) - len(end)) // len(piece)) + end


def string_of(piece, size):
    return filled(piece, size, BEGIN + b'"', b'"' + END)


# Bodies of about this size that are slow to read.
ODD_BODIES = {
    "objects": lambda size: filled(b"{},", size, end=b"{}" + END),
    "arrays": lambda size: filled(b"[],", size, end=b"[]" + END),
    "numbers": lambda size: filled(b"1,", size, end=b"1" + END),
    "strings": lambda size: filled(b'"",', size, end=b'""' + END),
    "fields": lambda size: filled(b'"a":1,', size, BEGIN + b"{", b'"b":1}' + END),
    "depth": lambda size: filled(b"[", size, end=b""),
    "depth and back": lambda size: filled(b"[[[[[]]]]],", size, end=b"[]" + END),
    "blanks": lambda size: filled(b" ", size),
    "digits": lambda size: filled(b"1", size),
    "fractions": lambda size: filled(b"0.12345678901234567,", size, end=b"1" + END),
    "quotes": lambda size: string_of(b'\\"', size),
    "escapes": lambda size: string_of(b"\\u0041", size),
    "pairs": lambda size: string_of(b"\\ud83d\\ude00", size),
    "two bytes": lambda size: string_of("é".encode(), size),
    "three bytes": lambda size: string_of("漢a".encode(), size),
    "four bytes": lambda size: string_of("😀".encode(), size),
    "one of two bytes": lambda size: string_of(b"a", size).replace(b"a", "é".encode(), 1),
    "letters": lambda size: string_of(b"a", size),
    "media": lambda size: string_of(b";base64,", size),
    "much media": lambda size: filled(b'";base64,",', size, end=b'""' + END),
    "data": lambda size: filled(b'"data",', size, end=b'""' + END),
    "data fields": lambda size: filled(b'{"data":"iVBORw0KGgo"},', size, end=b"{}" + END),
    "model": lambda size: filled(b"{},", size, b'{"messages":[],"model":[', b"{}]}"),
    "stream": lambda size: filled(b"{},", size, b'{"model":"m","messages":[],"stream":[', b"{}]}"),
    "options": lambda size: filled(
        b"{},", size, b'{"model":"m","messages":[],"stream_options":[', b"{}]}"
    ),
    "no end": lambda size: filled(b"{},", size, end=b""),
    "no JSON": lambda size: filled(b"}", size, end=b""),
    "comma at the end": lambda size: filled(b"1,", size),
}


def odd_bodies(size):
    """Yield (name, body) of all."""
    for name, made in ODD_BODIES.items():
        yield name, made(size)


def large_requests():
    """Yield (name, body) as large as real clients make them."""
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


def longest_step_s(make_steps, ends=(), runs=3, enough_s=0.0):
    """Return the thread's CPU time in the longest step, the best of several runs, because other
    load can slow down a step. A run without a step above ``enough_s`` is the last one."""
    longest = []
    for _ in range(runs):
        steps, durations_s = make_steps(), []
        while True:
            began = time.thread_time()
            try:
                next(steps)
            except (StopIteration, *ends):
                break
            finally:
                durations_s.append(time.thread_time() - began)
        longest.append(max(durations_s))
        if longest[-1] <= enough_s:
            break
    return min(longest)
