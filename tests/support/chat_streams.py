"""Answers of a chat completions vendor written by hand, and bounds of what a call may cost."""

import json

from tests.support.dialects import CHAT, GENERATE, MESSAGES, RESPONSES

TEXT = "word " * 40
BOUNDS = {CHAT: "max_tokens", RESPONSES: "max_output_tokens", MESSAGES: "max_tokens"}


def spelt(family, given, output):
    """The smallest usage that a family can report."""
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
    """A body whose bound is this one; messages cannot do without: there none is 0."""
    place = body["generationConfig"] if family == GENERATE else body
    name = BOUNDS.get(family, "maxOutputTokens")
    del place[name]
    if bound is not None or family == MESSAGES:
        place[name] = bound or 0
    return body


def thought(family, given, output, reasoning):
    """The smallest usage with reasoning, of which some families do not count it as output."""
    said = spelt(family, given, output if family == GENERATE else output + reasoning)
    if family == GENERATE:
        return {**said, "thoughtsTokenCount": reasoning}
    if family == MESSAGES:
        return {**said, "output_tokens_details": {"thinking_tokens": reasoning}}
    whose = "completion" if family == CHAT else "output"
    return {**said, f"{whose}_tokens_details": {"reasoning_tokens": reasoning}}
