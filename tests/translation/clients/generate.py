"""The google-genai SDK."""

from typing import Any

from google import genai
from google.genai import errors, types

from tests.sdk.world import TIMEOUT_S
from tests.translation.talk import KETTLE, PIXEL, PLACE, TOOLS, Call, Model, Seen, User

FAMILY = "generate_content"
ERROR = errors.APIError


class Client:
    def __init__(self, base_url, key, wire):
        self._answers = wire.answers
        options = types.HttpOptions(
            base_url=base_url, timeout=TIMEOUT_S * 1000, client_args={"transport": wire}
        )
        self._sdk = genai.Client(api_key=key, http_options=options)

    def ask(self, want, *, stream):
        contents = [_content(turn) for turn in want.turns]
        asked = {"model": want.model, "contents": contents, "config": _config(want)}
        if stream:
            chunks = list(self._sdk.models.generate_content_stream(**asked))
        else:
            chunks = [self._sdk.models.generate_content(**asked)]
        seen = _seen(chunks)
        seen.request_id = self._answers[-1][1]["x-request-id"]
        return seen


def _config(want):
    config: dict[str, Any] = {"max_output_tokens": want.limit}
    if want.system:
        config["system_instruction"] = want.system
    if want.tools:
        declared = [{"name": name, "parameters_json_schema": PLACE} for name in TOOLS]
        config["tools"] = [{"function_declarations": declared}]
    if want.force:
        calling = {"mode": "ANY", "allowed_function_names": [want.force]}
        config["tool_config"] = {"function_calling_config": calling}
    if want.schema:
        config["response_mime_type"] = "application/json"
        config["response_json_schema"] = KETTLE
    if want.temperature is not None:
        config["temperature"] = want.temperature
    if want.thinking:
        config["thinking_config"] = {"include_thoughts": True, "thinking_level": "MEDIUM"}
    if want.stop:
        config["stop_sequences"] = [want.stop]
    return config


def _content(turn):
    if isinstance(turn, User):
        parts = [types.Part(text=turn.text)]
        if turn.image:
            parts.append(types.Part.from_bytes(data=PIXEL, mime_type="image/png"))
        return types.Content(role="user", parts=parts)
    if isinstance(turn, Model):
        return types.Content(role="model", parts=[types.Part(text=turn.text)])
    if isinstance(turn, Seen):
        return turn.native
    return types.Content(role="user", parts=[_result(result) for result in turn])


def _result(result):
    said = {"error" if result.error else "output": result.text}
    call = result.call
    answered = types.FunctionResponse(id=call.id or None, name=call.name, response=said)
    return types.Part(function_response=answered)


def _seen(chunks):
    candidates = [candidate for chunk in chunks for candidate in chunk.candidates or ()]
    parts = [
        part
        for candidate in candidates
        if candidate.content is not None
        for part in candidate.content.parts or ()
    ]
    finishes = [candidate.finish_reason.name for candidate in candidates if candidate.finish_reason]
    assert len(finishes) <= 1
    blocked = [chunk for chunk in chunks if chunk.prompt_feedback is not None]
    usage = chunks[-1].usage_metadata
    thoughts, shown = usage.thoughts_token_count or 0, usage.candidates_token_count or 0
    read = usage.prompt_token_count + (usage.tool_use_prompt_token_count or 0)
    assert usage.total_token_count == read + shown + thoughts
    return Seen(
        text="".join(part.text for part in parts if part.text and not part.thought),
        thoughts="".join(part.text for part in parts if part.text and part.thought),
        calls=[
            Call(part.function_call.id or "", part.function_call.name, part.function_call.args)
            for part in parts
            if part.function_call is not None
        ],
        finish=finishes[0] if finishes else "",
        refused=bool(blocked) or finishes == ["SAFETY"],
        usage=(read, usage.cached_content_token_count or 0, None, shown + thoughts, thoughts),
        model=chunks[-1].model_version,
        native=types.Content(role="model", parts=parts),
    )
