"""Ids in requests and answers of responses that stand for what an account keeps: responses and
their items, conversations, containers, files, vector stores, prompts, skills. Imported by this
folder's ``client``, ``upstream`` and ``codec``."""

from collections.abc import Iterator
from typing import Any

from adapters.family.kept import (
    KeptFields,
    Marks,
    RefList,
    field_value,
    marked_elements,
    objects,
)
from adapters.faults import wrong_type
from adapters.json.jsonio import DECODE_ERRORS, Spans, Struct, decoder
from adapters.json.structure import Steps

# Ids of the thoughts of translated answers begin so: no vendor of this family knows them, and those
# that have nothing encrypted must be found in a client's history, too.
THOUGHT_ID = "rs_gw1."
_IN_INPUT = Marks("id", "file_id", "tools")
_IN_TOOLS = Marks("vector_store_ids", "container", "environment", "file_id")
_OF_CLIENT = ("function", "custom", "namespace")  # a tuple: any JSON may be looked for
_PLAIN_FIELDS = frozenset({"type", "id", "status", "role"})  # of an item that says nothing
_HANDED_OUT = (b'"container_id"', b'"conversation":')


def _read(spans: Spans, refs: RefList) -> Steps[None]:
    previous = field_value(spans, "previous_response_id")
    if previous is not None and not isinstance(previous, str):
        raise wrong_type("previous_response_id", "expected a string")
    refs.add("answer", "previous_response_id", previous, alone=True)
    _read_conversation(field_value(spans, "conversation"), refs)
    for path, options in objects(
        field_value(spans, "prompt_cache_options"), "prompt_cache_options"
    ):
        name = "comparison_response_id"
        refs.add("answer", f"{path}.{name}", options.get(name))
    for path, prompt in objects(field_value(spans, "prompt"), "prompt"):
        refs.add("given", f"{path}.id", prompt.get("id"))
        variables = prompt.get("variables")
        for name, value in variables.items() if isinstance(variables, dict) else ():
            _read_parts(value, f"{path}.variables.{name}", refs)
    yield from marked_elements(spans, "input", _IN_INPUT, lambda p, v: _read_item(v, p, refs))
    yield from marked_elements(spans, "tools", _IN_TOOLS, lambda p, v: _read_tools(v, p, refs))


def _read_conversation(value: object, refs: RefList) -> None:
    if isinstance(value, dict):
        if not isinstance(value.get("id"), str):
            raise wrong_type("conversation.id", "expected a string")
        refs.add("either", "conversation.id", value["id"], alone=True)
    elif value is not None and not isinstance(value, str):
        raise wrong_type("conversation", "expected a string or an object")
    refs.add("either", "conversation", value, alone=True)


def _read_item(value: object, start: str, refs: RefList) -> None:
    for path, item in objects(value, start):
        # The vendor fills in what an item of nothing but its id says.
        bare = not any(item[name] for name in item.keys() - _PLAIN_FIELDS)
        reference = bare or item.get("type") == "item_reference"
        if reference and not str(item.get("id")).startswith(THOUGHT_ID):
            refs.add("answer", f"{path}.id", item.get("id"))
        for name in ("content", "output"):
            _read_parts(item.get(name), f"{path}.{name}", refs)
        _read_tools(item.get("tools"), f"{path}.tools", refs)


def _read_parts(value: object, start: str, refs: RefList) -> None:
    for path, part in objects(value, start):
        refs.add("given", f"{path}.file_id", part.get("file_id"))


def _read_tools(value: object, start: str, refs: RefList) -> None:
    """Tools that the vendor runs; those of the client have nothing but schemas."""
    for path, tool in objects(value, start):
        if tool.get("type") in _OF_CLIENT:
            continue
        refs.add_all("given", f"{path}.vector_store_ids", tool.get("vector_store_ids"))
        refs.add("either", f"{path}.container", tool.get("container"))
        for name in ("container", "environment"):
            _read_container(tool.get(name), f"{path}.{name}", refs)
        _read_parts(tool.get("input_image_mask"), f"{path}.input_image_mask", refs)


def _read_container(value: object, start: str, refs: RefList) -> None:
    for path, container in objects(value, start):
        refs.add("either", f"{path}.container_id", container.get("container_id"))
        refs.add_all("given", f"{path}.file_ids", container.get("file_ids"))
        for inner, skill in objects(container.get("skills"), f"{path}.skills"):
            refs.add("given", f"{inner}.skill_id", skill.get("skill_id"))


KEPT = KeptFields(
    frozenset({"previous_response_id", "conversation", "prompt", "prompt_cache_options"}),
    (("input", _IN_INPUT), ("tools", _IN_TOOLS)),
    _read,
)


class _Environment(Struct, gc=False):
    container_id: str | None = None


class _Item(Struct, gc=False):
    id: str | None = None
    container_id: str | None = None
    environment: _Environment | None = None


class _Conversation(Struct, gc=False):
    id: str | None = None


class _Answer(Struct, gc=False):
    output: list[_Item]
    conversation: _Conversation | None = None


_decode = decoder(_Answer)


def made_ids(body: bytes, stored: bool) -> list[str]:
    """The ids that a whole answer hands out besides its own: of its conversation and containers,
    and of its items when it is ``stored``."""
    if not stored and not any(mark in body for mark in _HANDED_OUT):
        return []
    try:
        answer = _decode(body)
    except DECODE_ERRORS:
        return []
    found = [answer.conversation.id if answer.conversation is not None else None]
    for item in answer.output:
        environment = item.environment
        found += (
            item.id if stored else None,
            item.container_id,
            environment.container_id if environment is not None else None,
        )
    return [one for one in found if one]


def made_by_event(said: dict[str, Any], stored: bool) -> Iterator[object]:
    """Return what an event of a stream has where it hands out ids besides the response's own."""
    for path, response in objects(said.get("response"), ""):
        for _, conversation in objects(response.get("conversation"), path):
            yield conversation.get("id")
    for path, item in objects(said.get("item"), ""):
        yield item.get("id") if stored else None
        yield item.get("container_id")
        for _, environment in objects(item.get("environment"), path):
            yield environment.get("container_id")
