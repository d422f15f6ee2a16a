"""What the responses vendor accepts: the checks of a request, and what it asks for.

Source: the official types of the openai SDK as of November 2026. A field that is not known is
refused. Tools are in responses_tools.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from demo.family import ModelRequest
from demo.speech import prompt_tokens
from tests.vendor.family import Refusal, is_signed
from tests.vendor.fields import Fields, read_schema, read_strings, read_tool_name
from tests.vendor.models import check_openai_model
from tests.vendor.responses_tools import TOOL_NAME_MAX, check_known, read_tools
from tests.vendor.stored import Shelf
from tests.vendor.strict_schemas import check_strict

COUNT_FIELDS = (
    *("conversation", "input", "instructions", "model", "parallel_tool_calls", "personality"),
    *("previous_response_id", "reasoning", "text", "tool_choice", "tools", "truncation"),
)
COMPACT_FIELDS = (
    *("image", "input", "instructions", "model", "previous_response_id", "prompt_cache_key"),
    *("prompt_cache_options", "prompt_cache_retention", "service_tier"),
)
CREATE_FIELDS = (
    *("access_programs", "background", "background_options", "context_management"),
    *("conversation", "image", "include", "input", "instructions", "max_output_tokens"),
    *("max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls"),
    *("previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options"),
    *("prompt_cache_retention", "reasoning", "safety_identifier", "service_tier", "store"),
    *("stream", "stream_options", "temperature", "text", "tool_choice", "tools"),
    *("top_logprobs", "top_p", "truncation", "user"),
    "client_metadata",  # in no type, sent by Codex
)
TASK_FIELDS = {"generate": CREATE_FIELDS, "count": COUNT_FIELDS, "compact": COMPACT_FIELDS}
INCLUDES = (
    *("file_search_call.results", "web_search_call.results", "web_search_call.action.sources"),
    *("message.input_image.image_url", "computer_call_output.output.image_url"),
    *("code_interpreter_call.outputs", "reasoning.encrypted_content"),
    "message.output_text.logprobs",
)
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
SUMMARIES = ("auto", "concise", "detailed")
TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
OUTPUT_TOKENS_MIN = 16
ID_MAX = 64
METADATA_MAX = 16

USER_PARTS = ("input_text", "input_image", "input_file", "input_audio")
OUTPUT_PARTS = ("input_text", "input_image", "input_file")
PART_FIELDS = {
    "input_text": ("text", "prompt_cache_breakpoint"),
    "input_image": ("detail", "file_id", "image_url", "prompt_cache_breakpoint"),
    "input_file": (
        *("detail", "file_data", "file_id", "file_url", "filename"),
        "prompt_cache_breakpoint",
    ),
    "input_audio": ("input_audio",),
    "output_text": ("annotations", "logprobs", "text"),
    "refusal": ("refusal",),
}
ITEM_FIELDS = {
    "message": ("role", "content", "phase", "status"),
    "function_call": (*("arguments", "async", "call_id", "caller", "name", "namespace", "status"),),
    "function_call_output": ("call_id", "caller", "name", "namespace", "output", "status"),
    "custom_tool_call": ("async", "call_id", "caller", "input", "name", "namespace", "status"),
    "custom_tool_call_output": ("call_id", "caller", "output", "status"),
    "reasoning": ("content", "encrypted_content", "status", "summary"),
    "compaction": ("encrypted_content", "created_by"),
    "item_reference": (),
}
ID_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "reasoning": "rs",
    "compaction": "cmp",
}
# Items of hosted tools come back as they were sent; their insides are not checked.
OTHER_ITEMS = (
    *("file_search_call", "computer_call", "computer_call_output", "web_search_call"),
    *("tool_search_call", "tool_search_output", "additional_tools", "configuration_update"),
    *("image_generation_call", "code_interpreter_call", "local_shell_call"),
    *("local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call"),
    *("apply_patch_call_output", "mcp_list_tools", "mcp_approval_request"),
    *("mcp_approval_response", "mcp_call", "compaction_trigger", "program", "program_output"),
)
CALLS = ("function_call", "custom_tool_call")
RESULTS = ("function_call_output", "custom_tool_call_output")


def read_request(body: dict[str, Any], task: str, shelf: Shelf) -> ModelRequest:
    """Raises Refusal for what the vendor would refuse; the shelf tells which ids are known."""
    request = Fields(body)
    check_known(request, TASK_FIELDS[task])
    model = request.string("model") or "" if task == "count" else request.text("model")
    stored_tokens, open_calls = _read_state(request, shelf)
    talk = _read_input(request, task, Talk(shelf, list(open_calls)))
    _check_settings(request)
    tools, tool_mode = read_tools(request)
    schema = _read_text(request)
    check_openai_model(request, model, "reasoning.effort", schema=bool(schema))
    reasoning = _read_reasoning(request)
    stream = request.boolean("stream")
    _check_stream_options(request, stream)
    read = ("instructions", "input", "tools")
    return ModelRequest(
        model=model,
        prompt=talk.prompt,
        input_tokens=stored_tokens + prompt_tokens(*(body.get(name) for name in read)),
        stream=stream,
        fresh=talk.fresh,
        images=talk.images,
        tools=tools,
        tool_mode=tool_mode,
        parallel=body.get("parallel_tool_calls") is not False,
        schema=schema,
        thinking=reasoning is not None,
        thinking_shown=bool(reasoning),
        limit_tokens=request.integer("max_output_tokens", OUTPUT_TOKENS_MIN),
        body=body,
    )


def _check_settings(request: Fields) -> None:
    request.number("temperature", 0, 2)
    request.number("top_p", 0, 1)
    request.integer("top_logprobs", 0, 20)
    request.integer("max_tool_calls", 1)
    for name in ("instructions", "user", "safety_identifier", "prompt_cache_key"):
        request.string(name)
    for name in ("moderation", "image", "access_programs", "prompt_cache_options"):
        request.object(name)
    request.boolean("parallel_tool_calls")
    request.choice("service_tier", *TIERS)
    request.choice("truncation", "auto", "disabled")
    request.choice("prompt_cache_retention", "in_memory", "24h")
    request.entries("context_management")
    for index, name in enumerate(read_strings(request, "include", len(INCLUDES))):
        if name not in INCLUDES:
            problem = f"must be one of {', '.join(INCLUDES)}"
            raise Refusal(problem, (*request.at("include"), index))
    metadata = request.object("metadata")
    if metadata is not None:
        if len(metadata.value) > METADATA_MAX:
            raise Refusal(f"must hold {METADATA_MAX} entries at most", metadata.path)
        for name in metadata.value:
            metadata.string(name)
    request.boolean("store")
    if request.boolean("background") and request.value.get("store") is False:
        raise Refusal("needs 'store' to be true", request.at("background"))


def _check_stream_options(request: Fields, stream: bool) -> None:
    options = request.object("stream_options")
    if options is None:
        return
    if not stream:
        raise Refusal("is only allowed when 'stream' is true", options.path)
    check_known(options, ("include_obfuscation",))
    options.boolean("include_obfuscation")


def _read_reasoning(request: Fields) -> str | None:
    """The kind of summary, "" for none; None when the model is not to think."""
    wanted = request.object("reasoning")
    if wanted is None:
        return None
    check_known(wanted, ("context", "effort", "generate_summary", "mode", "summary"))
    wanted.choice("context", "auto", "current_turn", "all_turns")
    wanted.string("mode")
    effort = wanted.choice("effort", *EFFORTS)
    older = wanted.choice("generate_summary", *SUMMARIES)
    summary = wanted.choice("summary", *SUMMARIES) or older or ""
    return None if effort == "none" else summary


def _read_text(request: Fields) -> dict[str, Any] | None:
    config = request.object("text")
    if config is None:
        return None
    check_known(config, ("format", "verbosity"))
    config.choice("verbosity", "low", "medium", "high")
    wanted = config.object("format")
    if wanted is None:
        return None
    wanted.required("type")
    kind = wanted.choice("type", "text", "json_object", "json_schema")
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    name = read_tool_name(wanted, TOOL_NAME_MAX)
    check_known(wanted, ("type", "name", "schema", "strict", "description"))
    wanted.string("description")
    wanted.required("schema")
    schema = read_schema(wanted, "schema")
    if wanted.boolean("strict"):
        check_strict(schema, wanted.at("schema"), f"response_format '{name}'")
    return schema


# State of the vendor.


def _read_state(request: Fields, shelf: Shelf) -> tuple[int, tuple[str, ...]]:
    """The tokens and the open calls of the talk that is continued."""
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
    found = shelf.get(previous)
    if found is None:
        problem = f"Previous response with id '{previous}' not found."
        path = request.at("previous_response_id")
        raise Refusal(problem, path, "plain", code="previous_response_not_found")
    return found.context_tokens, found.open_calls


def _unknown(what: str) -> Refusal:
    return Refusal(f"{what} not found.", kind="plain", status=404)


# Input.


@dataclass(slots=True)
class Talk:
    """What the items of the input come to; `open_calls` lack their result."""

    shelf: Shelf
    open_calls: list[str]
    prompt: str = ""
    images: int = 0
    fresh: bool = True
    ids: set[str] = field(default_factory=set)
    thought: str = ""  # id of a reasoning item that was the last

    def add(self, item: Fields) -> None:
        if not item.has("type") and not item.has("role") and item.has("id"):
            kind = "item_reference"
        else:
            kind = _read_type(item)
        self.fresh = kind not in RESULTS
        if self.thought and kind in (*RESULTS, "message") and item.value.get("role") != "assistant":
            raise self._unfollowed()
        self.thought = ""
        self._check_id(item, kind)
        if kind in ITEM_FIELDS:
            check_known(item, ("type", "id", *ITEM_FIELDS[kind]))
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
        if isinstance(item.value["content"], str):
            words = [item.value["content"]]
        else:
            allowed = ("output_text", "refusal") if role == "assistant" else USER_PARTS
            parts = item.entries("content")
            words = [text for part in parts if (text := self._part(part, allowed))]
        if role == "user" and words:
            self.prompt = "\n".join(words)

    def _part(self, part: Fields, allowed: tuple[str, ...]) -> str:
        part.required("type")
        kind = str(part.choice("type", *allowed))
        check_known(part, ("type", *PART_FIELDS[kind]))
        if kind in ("input_text", "output_text", "refusal"):
            name = "refusal" if kind == "refusal" else "text"
            part.required(name)
            part.entries("annotations")
            return part.string(name) or ""
        if kind == "input_image":
            self.images += 1
            _check_image(part)
        elif kind == "input_audio":
            part.required("input_audio")
            audio = Fields(part.value["input_audio"], part.at("input_audio"))
            audio.text("data")
            audio.required("format")
            audio.choice("format", "wav", "mp3")
        elif not any(map(part.has, ("file_data", "file_id", "file_url"))):
            raise Refusal("required", part.at("file_data"), "missing")
        return ""

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
                self._part(part, OUTPUT_PARTS)
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
        """After the last item."""
        if self.thought:
            raise self._unfollowed()

    def _unfollowed(self) -> Refusal:
        problem = f"Item '{self.thought}' of type 'reasoning' was provided without its required "
        return Refusal(problem + "following item.", ("input",), "plain")

    def _add_referred(self, name: str) -> None:
        found = self.shelf.item(name)
        if found is None:
            raise _lost(name)
        if found["type"] in CALLS and found["call_id"] not in self.open_calls:
            self.open_calls.append(found["call_id"])


def _read_input(request: Fields, task: str, talk: Talk) -> Talk:
    given = request.value.get("input")
    continued = request.has("previous_response_id")
    if given in (None, []) and not continued and task != "count":
        problem = "One of 'input' or 'previous_response_id' or 'conversation' must be provided."
        raise Refusal(problem, ("input",), "plain", code="missing_required_parameter")
    if isinstance(given, str):
        talk.prompt = given
    elif isinstance(given, list):
        for item in request.entries("input"):
            talk.add(item)
        talk.end()
    elif given is not None:
        raise Refusal("a string or an array of items", request.at("input"), "type")
    if talk.open_calls:
        problem = f"No tool output found for function call {talk.open_calls[0]}."
        raise Refusal(problem, ("input",), "plain")
    return talk


def _read_type(item: Fields) -> str:
    """A message may lack its type."""
    if not item.has("type") and item.has("role"):
        return "message"
    item.required("type")
    return str(item.choice("type", *ITEM_FIELDS, *OTHER_ITEMS))


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
