"""Checks of requests by the responses vendor, except for tools (responses_tools).

The openai SDK gives the fields and settings; this module has the rules between them. An unknown
field is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, get_args

from openai.types.responses.input_token_count_params import InputTokenCountParams
from openai.types.responses.response_compact_params import ResponseCompactParams
from openai.types.responses.response_create_params import ResponseCreateParamsBase
from openai.types.responses.response_input_audio_param import ResponseInputAudioParam
from openai.types.responses.response_input_content_param import ResponseInputContentParam
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.response_output_refusal_param import ResponseOutputRefusalParam
from openai.types.responses.response_output_text_param import ResponseOutputTextParam

from demo.family import Tool, ToolMode
from tests.vendor.family import Refusal, is_signed
from tests.vendor.fields import Fields, read_schema, read_tool_name
from tests.vendor.models import check_openai_model
from tests.vendor.responses_tools import TOOL_NAME_MAX, check_known, read_tools, unknown_parameter
from tests.vendor.sdk_types import RequestType, fields_by_kind
from tests.vendor.stored import Shelf
from tests.vendor.strict_schemas import check_strict

# Fields that the vendor accepts in other forms than the types say.
OTHERWISE = ("input", "tools", "tool_choice", "text", "conversation", "prompt")
TYPES = {
    "generate": RequestType(
        ResponseCreateParamsBase,
        extra=(*OTHERWISE, "stream", "client_metadata"),  # the last: in no type, sent by Codex
        unknown=unknown_parameter,
    ),
    "count": RequestType(InputTokenCountParams, extra=OTHERWISE[:-1], unknown=unknown_parameter),
    "compact": RequestType(ResponseCompactParams, extra=("input",), unknown=unknown_parameter),
}
OUTPUT_TOKENS_MIN = 16
ID_MAX = 64
METADATA_MAX = 16

USER_PARTS = ("input_text", "input_image", "input_file", "input_audio")
OUTPUT_PARTS = ("input_text", "input_image", "input_file")
PART_FIELDS = fields_by_kind(
    *get_args(ResponseInputContentParam),
    *(ResponseInputAudioParam, ResponseOutputTextParam, ResponseOutputRefusalParam),
)
CHECKED_ITEMS = (
    *("message", "function_call", "function_call_output", "custom_tool_call"),
    *("custom_tool_call_output", "reasoning", "compaction", "item_reference"),
)
OLDER_FIELDS = {"status", "created_by"}  # of older items, in no type
# Items of hosted tools come back as they were sent; their content is not checked.
ITEM_FIELDS = fields_by_kind(*get_args(ResponseInputItemParam))
ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
    "compaction": "cmp",
}
CALLS = ("function_call", "custom_tool_call")
RESULTS = ("function_call_output", "custom_tool_call_output")


def check_request(
    body: dict[str, Any], task: str, shelf: Shelf
) -> tuple[int, tuple[Tool, ...], ToolMode]:
    """Raise Refusal for what the vendor would refuse; the shelf has the known ids.

    Return the tokens of the continued conversation, the tools that may be called, and the mode.
    """
    request = Fields(body)
    TYPES[task].check(body)
    model = request.string("model") or "" if task == "count" else request.text("model")
    stored_tokens, open_calls = _read_state(request, shelf)
    _check_input(request, task, Talk(shelf, list(open_calls)))
    _check_settings(request)
    tools, tool_mode = read_tools(request)
    schema = _read_text(request)
    check_openai_model(request, model, "reasoning.effort", schema=bool(schema))
    return stored_tokens, tools, tool_mode


def _check_settings(request: Fields) -> None:
    request.number("temperature", 0, 2)
    request.number("top_p", 0, 1)
    request.integer("top_logprobs", 0, 20)
    request.integer("max_tool_calls", 1)
    request.integer("max_output_tokens", OUTPUT_TOKENS_MIN)
    metadata = request.object("metadata")
    if metadata is not None and len(metadata.value) > METADATA_MAX:
        raise Refusal(f"must hold {METADATA_MAX} entries at most", metadata.path)
    if request.boolean("background") and request.value.get("store") is False:
        raise Refusal("needs 'store' to be true", request.at("background"))
    stream = request.boolean("stream")
    if request.has("stream_options") and not stream:
        raise Refusal("is only allowed when 'stream' is true", request.at("stream_options"))


def _read_text(request: Fields) -> dict[str, Any] | None:
    config = request.object("text")
    if config is None:
        return None
    check_known(config, ("format", "verbosity"))
    config.choice("verbosity", "low", "medium", "high")
    described = config.object("format")
    if described is None:
        return None
    described.required("type")
    kind = described.choice("type", "text", "json_object", "json_schema")
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    name = read_tool_name(described, TOOL_NAME_MAX)
    check_known(described, ("type", "name", "schema", "strict", "description"))
    described.string("description")
    described.required("schema")
    schema = read_schema(described, "schema")
    if described.boolean("strict"):
        check_strict(schema, described.at("schema"), f"response_format '{name}'")
    return schema


# State of the vendor.


def _read_state(request: Fields, shelf: Shelf) -> tuple[int, tuple[str, ...]]:
    """Return the tokens and the open calls of the continued conversation."""
    previous = request.string("previous_response_id")
    conversation = request.value.get("conversation")
    if isinstance(conversation, dict):
        conversation = Fields(conversation, request.at("conversation")).text("id")
    elif conversation is not None:
        conversation = request.text("conversation")
    if previous is not None and conversation is not None:
        problem = "Mutually exclusive parameters: 'previous_response_id' and 'conversation'."
        path = request.at("previous_response_id")
        raise Refusal(problem, path, "plain", code="mutually_exclusive_parameters")
    if conversation is not None:
        raise _unknown(f"Conversation with id '{conversation}'")
    prompt = request.object("prompt")
    if prompt is not None:
        raise _unknown(f"Prompt with id '{prompt.text('id')}'")
    if previous is None:
        return 0, ()
    stored = shelf.get(previous)
    if stored is None:
        problem = f"Previous response with id '{previous}' not found."
        path = request.at("previous_response_id")
        raise Refusal(problem, path, "plain", code="previous_response_not_found")
    return stored.context_tokens, stored.open_calls


def _unknown(what: str) -> Refusal:
    return Refusal(f"{what} not found.", kind="plain", status=404)


# Input.


@dataclass(slots=True)
class Talk:
    """The items of the input so far; `open_calls` are those without a result."""

    shelf: Shelf
    open_calls: list[str]
    ids: set[str] = field(default_factory=set)
    thought: str = ""  # id of the previous item if it is a reasoning item

    def add(self, item: Fields) -> None:
        if not item.has("type") and not item.has("role") and item.has("id"):
            kind = "item_reference"
        else:
            kind = _read_type(item)
        if self.thought and kind in (*RESULTS, "message") and item.value.get("role") != "assistant":
            raise self._unfollowed()
        self.thought = ""
        self._check_id(item, kind)
        if kind in CHECKED_ITEMS:
            check_known(item, {"type", "id"} | ITEM_FIELDS[kind] | OLDER_FIELDS)
            item.choice("status", "in_progress", "completed", "incomplete")
        if kind == "message":
            self._add_message(item)
        elif kind in CALLS:
            self._add_call(item, "arguments" if kind == "function_call" else "input")
        elif kind in RESULTS:
            self._add_result(item)
        elif kind == "reasoning":
            self._add_reasoning(item)
        elif kind == "compaction":
            _check_seal(item.text("encrypted_content"))
        elif kind == "item_reference":
            self._add_referred(item.text("id"))

    def _check_id(self, item: Fields, kind: str) -> None:
        name = item.string("id")
        if name is None:
            return
        prefix = ID_PREFIXES.get(kind, "")
        if not name.startswith(prefix):
            problem = f"Invalid '{_place(item, 'id')}': '{name}'. Expected an ID that begins with"
            raise Refusal(f"{problem} '{prefix}'.", item.at("id"), "plain", code="invalid_value")
        if len(name) > ID_MAX:
            raise Refusal(f"must have {ID_MAX} characters at most", item.at("id"))
        if name in self.ids:
            problem = f"Duplicate item found with id {name}."
            raise Refusal(f"{problem} Remove duplicate items from your input.", ("input",), "plain")
        self.ids.add(name)

    def _add_message(self, item: Fields) -> None:
        item.required("role", "content")
        role = item.choice("role", "user", "system", "developer", "assistant")
        item.choice("phase", "commentary", "final_answer")
        if not isinstance(item.value["content"], str):
            allowed = ("output_text", "refusal") if role == "assistant" else USER_PARTS
            for part in item.entries("content"):
                self._check_part(part, allowed)

    def _check_part(self, part: Fields, allowed: tuple[str, ...]) -> None:
        part.required("type")
        kind = str(part.choice("type", *allowed))
        check_known(part, PART_FIELDS[kind])
        if kind in ("input_text", "output_text", "refusal"):
            name = "refusal" if kind == "refusal" else "text"
            part.required(name)
            part.string(name)
            part.entries("annotations")
        elif kind == "input_image":
            _check_image(part)
        elif kind == "input_audio":
            part.required("input_audio")
            audio = Fields(part.value["input_audio"], part.at("input_audio"))
            audio.text("data")
            audio.required("format")
            audio.choice("format", "wav", "mp3")
        elif not any(map(part.has, ("file_data", "file_id", "file_url"))):
            raise Refusal("required", part.at("file_data"), "missing")

    def _add_call(self, item: Fields, words: str) -> None:
        _check_call_id(item)
        item.text("name")
        item.string("namespace")
        item.required(words)
        item.string(words)
        if item.value["call_id"] in self.open_calls:
            problem = f"Duplicate function call with call_id {item.value['call_id']}."
            raise Refusal(problem, ("input",), "plain")
        self.open_calls.append(item.value["call_id"])

    def _add_result(self, item: Fields) -> None:
        _check_call_id(item)
        item.required("output")
        if not isinstance(item.value["output"], str):
            for part in item.entries("output"):
                self._check_part(part, OUTPUT_PARTS)
        called = item.value["call_id"]
        if called not in self.open_calls:
            problem = f"No tool call found for function call output with call_id {called}."
            raise Refusal(problem, ("input",), "plain")
        self.open_calls.remove(called)

    def _add_reasoning(self, item: Fields) -> None:
        if "summary" not in item.value:
            raise Refusal("required", item.at("summary"), "missing")
        for name, kind in (("summary", "summary_text"), ("content", "reasoning_text")):
            for part in item.entries(name):
                part.required("type", "text")
                part.choice("type", kind)
                part.string("text")
        sealed = item.string("encrypted_content")
        if sealed is not None:
            _check_seal(sealed)
        elif self.shelf.item(item.text("id")) is None:
            raise _lost(item.text("id"))
        self.thought = item.string("id") or "without id"

    def end(self) -> None:
        """Check the state after the last item."""
        if self.thought:
            raise self._unfollowed()

    def _unfollowed(self) -> Refusal:
        problem = f"Item '{self.thought}' of type 'reasoning' was provided without its required "
        return Refusal(problem + "following item.", ("input",), "plain")

    def _add_referred(self, name: str) -> None:
        stored = self.shelf.item(name)
        if stored is None:
            raise _lost(name)
        if stored["type"] in CALLS and stored["call_id"] not in self.open_calls:
            self.open_calls.append(stored["call_id"])


def _check_input(request: Fields, task: str, talk: Talk) -> None:
    sent = request.value.get("input")
    continued = request.has("previous_response_id")
    if sent in (None, []) and not continued and task != "count":
        message = "One of 'input' or 'previous_response_id' or 'conversation' must be provided."
        raise Refusal(message, ("input",), "plain", code="missing_required_parameter")
    if isinstance(sent, list):
        for item in request.entries("input"):
            talk.add(item)
        talk.end()
    elif sent is not None and not isinstance(sent, str):
        raise Refusal("a string or an array of items", request.at("input"), "type")
    if talk.open_calls:
        message = f"No tool output found for function call {talk.open_calls[0]}."
        raise Refusal(message, ("input",), "plain")


def _read_type(item: Fields) -> str:
    """Return an item's type, which a message may omit."""
    if not item.has("type") and item.has("role"):
        return "message"
    item.required("type")
    return str(item.choice("type", *ITEM_FIELDS))


def _place(item: Fields, name: str) -> str:
    return f"input[{item.path[-1]}].{name}"


def _check_call_id(item: Fields) -> None:
    if len(item.text("call_id")) > ID_MAX:
        problem = f"Invalid '{_place(item, 'call_id')}': string too long. Expected a string with"
        problem = f"{problem} maximum length {ID_MAX}."
        raise Refusal(problem, item.at("call_id"), "plain", code="string_above_max_length")


def _check_image(part: Fields) -> None:
    part.choice("detail", "auto", "low", "high", "original")
    if part.has("file_id"):
        part.text("file_id")
        return
    if not part.text("image_url").startswith(("https://", "http://", "data:image/")):
        problem = "must be an http(s) URL or a data URL of an image"
        raise Refusal(problem, part.at("image_url"))


def _check_seal(value: str) -> None:
    if not is_signed(value):
        problem = f"The encrypted content {value[:12]}… could not be verified. Reason: Encrypted"
        problem = f"{problem} content could not be decrypted or parsed."
        raise Refusal(problem, kind="plain", code="invalid_encrypted_content")


def _lost(name: str) -> Refusal:
    problem = (
        f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )
    return Refusal(problem, ("input",), "plain", status=404)
