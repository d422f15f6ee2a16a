"""Asks of a request: everything beyond text and functions that affects money or rights.

A family's ``client.peek`` collects them with an ``AskReader``; most requests have
``NOTHING_ASKED``. Source: pricing.md, section 6, and the types of the official SDKs. Imported by
the families and the relay.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.faults import wrong_type, wrong_value
from adapters.json.jsonio import DECODE_ERRORS, Spans, Struct, decoder
from adapters.json.structure import Steps, has_more_values
from store.values.features import FEATURES
from store.values.usage import (
    NOT_REPORTED,
    PLAIN_GEOS,
    PLAIN_SPEEDS,
    PLAIN_TIERS,
    Served,
    served_tier,
    served_word,
)


class Ask(Struct, frozen=True, gc=False):
    """A feature (``store.values.features``) that a request asks for, and the path of the field.

    ``word``: the client's value, for tiers and the like. A value that is no feature asks for
    ``tier`` or ``speed`` itself. ``droppable``: a hosted tool that is not forced, so a translation
    can leave it out.
    """

    feature: str
    path: str
    word: str = ""
    droppable: bool = False


class ModelAsk(Struct, frozen=True, gc=False):
    """Another model that may run inside the call, named in an element of an array.

    ``uses``: how often at most. ``max_output_tokens``: for each use. None: the call's bound, or
    for an advisor the bound of its model.
    """

    field: str
    index: int
    name: str
    uses: int = 1
    max_output_tokens: int | None = None

    @property
    def is_advisor(self) -> bool:
        """True for a tool, false for a fallback model."""
        return self.field == "tools"

    @property
    def path(self) -> str:
        """The path of the field that names the model."""
        return f"{self.field}[{self.index}].model"


class Asks(Struct, frozen=True, gc=False):
    """Everything that a request asks for.

    ``conditions``: of service, empty for the vendor's default (and for the tier ``auto``).
    ``uses``: meters of hosted tools, each with the most uses that the request allows. ``outputs``:
    meters of other modalities that the answer may have. ``models``: other models that may run
    inside the call. ``left_out``: paths of hosted tools that a translation has to leave out.
    """

    features: tuple[Ask, ...] = ()
    conditions: Served = NOT_REPORTED
    uses: tuple[tuple[str, int], ...] = ()
    outputs: tuple[str, ...] = ()
    models: tuple[ModelAsk, ...] = ()
    left_out: frozenset[str] = frozenset()


NOTHING_ASKED = Asks()
USES_WITHOUT_BOUND = 5
"""Uses of a hosted tool that a hold covers if the request sets no bound."""
MAX_TOOLS = 10_000
"""Limit of tools in a request: as many as a vendor searches through."""
MAX_TOOL_VALUES = 500_000
"""Limit of JSON values in the tools of a large request. They are decoded at once, in some ms."""
MAX_ASKS = 256
"""Limit of hosted tools and other asks of a request, and of its other models."""

_DESCRIBED = ("function", "custom")
_CLIENT_RUN = frozenset({None, "", "function", "custom", "namespace", "local_shell", "apply_patch"})
# Prefixes of the kinds of tools; dates and variants follow them. Empty: the client runs the tool.
_KINDS = (
    ("web_search", "web_search"),
    ("web_fetch", "web_fetch"),
    ("file_search", "file_search"),
    ("code_execution", "code_execution"),
    ("code_interpreter", "code_execution"),
    ("image_generation", "image_generation"),
    ("computer", "computer"),
    ("mcp", "mcp"),
    ("advisor", "advisor"),
    ("bash", ""),
    ("text_editor", ""),
    ("str_replace", ""),
    ("memory", ""),
)
HOSTED_FEATURES = frozenset({"any_other_tool", *(word for _, word in _KINDS)} - {""})
"""The features that hosted tools ask for."""
_DEFAULT_TIERS = frozenset({"", "auto", "unspecified"})
_TIER_PREFIX = "service_tier_"  # prefix in the names of an enum
_OUTPUTS = {"audio": "audio_output", "image": "image_output"}


class HostedTool(Struct, frozen=True, gc=False):
    """The fields of a tool that the gateway reads; schemas and descriptions are skipped."""

    type: str | None = None
    name: Any = None
    model: Any = None
    max_uses: Any = None
    max_tokens: Any = None
    environment: Any = None
    execution: Any = None
    tools: "list[HostedTool] | None" = None

    @property
    def feature(self) -> str:
        """The feature that the tool asks for; empty if the client runs the tool."""
        kind = self.type
        if kind is None or kind in _CLIENT_RUN:
            return ""
        if kind == "shell":  # in a container of the vendor, or at the client
            where = self.environment.get("type") if isinstance(self.environment, dict) else ""
            return "code_execution" if str(where).startswith("container") else ""
        if kind == "tool_search" and self.execution == "client":
            return ""
        kind = kind.rpartition(":")[2]  # some vendors put their name first
        return next((word for start, word in _KINDS if kind.startswith(start)), "any_other_tool")


_decode_tools = decoder(list[HostedTool])


def hosted_feature(tool: Mapping[str, Any]) -> str:
    """Return the feature that a decoded tool asks for; empty if the client runs the tool."""
    kind = tool.get("type")
    if kind is not None and not isinstance(kind, str):
        return "any_other_tool"
    environment, execution = tool.get("environment"), tool.get("execution")
    return HostedTool(kind, environment=environment, execution=execution).feature


class AskReader:
    """Collector of one request's asks. Each method reads a field that may be absent."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._features: list[Ask] = []
        self._conditions: dict[str, str] = {}
        self._uses: dict[str, int] = {}
        self._outputs: list[str] = []
        self._models: list[ModelAsk] = []
        self._tools: Sequence[HostedTool] = ()

    def asks(self) -> Asks:
        """Return the collected asks."""
        features, conditions = tuple(self._features), self._conditions
        if not features and not conditions and not self._outputs:
            return NOTHING_ASKED
        served = Served(**conditions) if conditions else NOT_REPORTED
        outputs, uses = tuple(dict.fromkeys(self._outputs)), tuple(self._uses.items())
        return Asks(features, served, uses, outputs, tuple(self._models))

    def add(self, feature: str, path: str, word: str = "", *, droppable: bool = False) -> None:
        """Add an ask for a feature without uses. Raises Fault INVALID_FIELD if there are more than
        MAX_ASKS."""
        if len(self._features) >= MAX_ASKS:
            raise wrong_value(path, f"expected at most {MAX_ASKS} hosted tools and the like")
        self._features.append(Ask(feature, path, word, droppable))

    def flag(self, feature: str, name: str) -> None:
        """Read a field that asks for a feature by any value except null and false."""
        if name in self._spans and self._spans.raw(name) not in (b"null", b"false"):
            self.add(feature, name)

    def tier(self, name: str) -> None:
        """Read a service tier."""
        if name not in self._spans:
            return
        word = served_tier(self._spans.value(name)).removeprefix(_TIER_PREFIX)
        if word in _DEFAULT_TIERS:
            return
        tier = "default" if word in ("standard", "standard_only") else word
        self._conditions["tier"] = tier
        self._served("tier", tier, name, plain=tier in PLAIN_TIERS)

    def speed(self, value: object, path: str) -> None:
        """Read the speed of the call, or of a model that may answer in its place."""
        word = served_word(value)
        if word not in PLAIN_SPEEDS:
            self._conditions["speed"] = word
            self._served("speed", word, path)

    def _served(self, condition: str, word: str, path: str, *, plain: bool = False) -> None:
        """Add an ask for a condition of service. ``plain``: it costs no more than the plain rate,
        so it counts only if it is a feature."""
        feature = f"{condition}.{word}"
        if feature in FEATURES:
            self.add(feature, path, word)
        elif not plain:
            self.add(condition, path, word)

    def geo(self, name: str) -> None:
        """Read the region."""
        word = served_word(self._spans.value(name)) if name in self._spans else ""
        if word not in PLAIN_GEOS:
            self._conditions["geo"] = word
            self.add("geo", name, word)

    def modalities(self, value: object, path: str) -> None:
        """Read the modalities of the answer, ignoring their case."""
        for word in value if isinstance(value, list) else ():
            feature = _OUTPUTS.get(served_word(word))
            if feature is not None:
                self.add(feature, path, word)
                self.output(FEATURES[feature].meter)

    def output(self, meter: str | None) -> None:
        """Add the meter of another modality that the answer may have."""
        if meter is not None:
            self._outputs.append(meter)

    def hosted(self, feature: str, path: str, uses: object = None, word: str = "") -> None:
        """Add a hosted tool with the most uses that the request allows."""
        self.add(feature, path, word, droppable=True)
        meter = FEATURES[feature].meter
        if meter is not None:
            most = uses if type(uses) is int and uses >= 0 else USES_WITHOUT_BOUND
            self._uses[meter] = self._uses.get(meter, 0) + most
        if feature == "image_generation":  # some vendors also count the tokens of pictures
            self.output("output_image")

    @property
    def has_flat_tools(self) -> bool:
        """True if any tool that ``tools`` read is described beside its type."""
        return any(tool.name is not None and tool.type in _DESCRIBED for tool in self._tools)

    def tools(self, bound: object = None) -> list[tuple[int, HostedTool]]:
        """Read the tools, and whether a hosted one is forced. Return the hosted ones with their
        indexes. ``bound``: of all their uses together. Raises Fault INVALID_FIELD if the field is
        no list of objects."""
        self._tools = tools = elements_of(self._spans, "tools", _decode_tools)
        before, hosted = len(self._features), []
        for index, tool in enumerate(tools):
            if tool.type in _CLIENT_RUN and tool.tools is None:  # nearly always
                continue
            path = f"tools[{index}]"
            if self._tool(tool, path, bound):
                hosted.append((index, tool))
            for at, inner in enumerate(tool.tools or ()):
                self._tool(inner, f"{path}.tools[{at}]", bound)
        if hosted and "tool_choice" in self._spans:
            self._force(hosted, before, alone=len(hosted) == len(tools))
        return hosted

    def _tool(self, tool: HostedTool, path: str, bound: object) -> bool:
        feature = tool.feature
        if feature:
            uses = bound if tool.max_uses is None else tool.max_uses
            self.hosted(feature, path, uses, tool.type or "")
        return bool(feature)

    def _force(self, hosted: Sequence[tuple[int, HostedTool]], before: int, *, alone: bool) -> None:
        """Mark the hosted tools that must be called: the named one, or all of them if some tool
        must be called and there are no other tools."""
        choice = self._spans.value("tool_choice")
        fields = choice if isinstance(choice, dict) else {"type": choice}
        names = [word for word in (fields.get("name"), fields.get("type")) if isinstance(word, str)]
        every = alone and names[-1:] in (["any"], ["required"])
        forced = {
            f"tools[{index}]"
            for index, tool in hosted
            if every or tool.type in names or tool.name in names
        }
        self._features[before:] = [
            Ask(ask.feature, ask.path, ask.word, ask.path not in forced)
            for ask in self._features[before:]
        ]

    def model(self, ask: ModelAsk) -> None:
        """Add another model. Raises Fault INVALID_FIELD if its name is no string or there are more
        than MAX_ASKS."""
        if not isinstance(ask.name, str):
            raise wrong_type(ask.path, "expected a string")
        if len(self._models) >= MAX_ASKS:
            raise wrong_value(ask.path, f"expected at most {MAX_ASKS} other models")
        self._models.append(ask)


def bounded_steps(spans: Spans) -> Steps[None]:
    """Check in steps that no array that is decoded at once has more than MAX_TOOL_VALUES values;
    for large requests. Raises Fault INVALID_FIELD."""
    for name in ("tools", "fallbacks"):
        text = spans.raw(name)
        if text is not None and (yield from has_more_values(text, MAX_TOOL_VALUES)):
            raise wrong_value(name, f"expected at most {MAX_TOOL_VALUES} JSON values")


def elements_of(spans: Spans, name: str, decode: Any) -> Sequence[Any]:
    """Return the elements of an array of objects, decoded at once; none if absent or null. Raises
    Fault INVALID_FIELD for anything else, and for more than MAX_TOOLS."""
    text = spans.raw(name)
    if text is None or text == b"null":
        return ()
    try:
        values: Sequence[Any] = decode(text)
    except DECODE_ERRORS:
        raise wrong_type(name, "expected an array of objects") from None
    if len(values) > MAX_TOOLS:
        raise wrong_value(name, f"expected at most {MAX_TOOLS} elements")
    return values
