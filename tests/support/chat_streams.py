"""Handwritten answers of a chat completions vendor, and bounds on the cost of a call."""

import json

from tests.support.dialects import CHAT, GENERATE, MESSAGES, RESPONSES

TEXT = "word " * 40
BOUNDS = {CHAT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}


def spelt(family, given, output):
    """Return the smallest usage object that a family can report."""
    if family == GENERATE:
        return {"promptTokenCount": given, "candidatesTokenCount": output}
    if family == CHAT:
        return {"prompt_tokens": given, "completion_tokens": output}
    return {"input_tokens": given, "output_tokens": output}


def chat_stream(usages):
    def chunk(choices, **more):
        return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m",
                      "choices": choices, **more})  # fmt: skip

    yield chunk([{"index": 0, "delta": {"role": "assistant", "content": TEXT}}])
    yield chunk([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    for usage in usages:
        yield chunk([], usage=usage)
    yield b"data: [DONE]\n\n"


def event(said, end=b"\n"):
    return b"data: " + json.dumps(said).encode() + end + end


def bounded(body, family, bound):
    """Return the body with this bound on output. The messages family requires a bound: for None it
    gets 0."""
    place = body["generationConfig"] if family == GENERATE else body
    name = BOUNDS.get(family, "maxOutputTokens")
    del place[name]
    if bound is not None or family == MESSAGES:
        place[name] = bound or 0
    return body


def thought(family, given, output, reasoning):
    """Return the smallest usage object with reasoning; chat completions, responses and messages
    count reasoning as output."""
    said = spelt(family, given, output if family == GENERATE else output + reasoning)
    if family == GENERATE:
        return {**said, "thoughtsTokenCount": reasoning}
    if family == MESSAGES:
        return {**said, "output_tokens_details": {"thinking_tokens": reasoning}}
    whose = "completion" if family == CHAT else "output"
    return {**said, f"{whose}_tokens_details": {"reasoning_tokens": reasoning}}
