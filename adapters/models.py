"""The table of models: capabilities of upstream models, by vendor and prefix of the model's name.

A row is a fact of the vendor's documentation. The longest prefix wins, regardless of case. A
channel's ``options`` override single traits. Imported by the registry, the relay and commands.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
from msgspec.structs import replace

from adapters.family.traits import ALL_EFFORTS, Refusable, Traits
from adapters.ir.request import Effort

_THREE: tuple[Effort, ...] = ("low", "medium", "high")
_WITH_OFF: tuple[Effort, ...] = ("off", *_THREE)

_GPT = Traits(openai_extras=True, verbosity=True, custom_tools=True)
_PLAIN_GPT = Traits(openai_extras=True, thinking="none")
_OLD_GPT = Traits(
    openai_extras=True, thinking="none", images=False, documents=False, structured="tool"
)


def _o_series() -> Traits:
    """Return the traits of an OpenAI reasoning model, which accepts no sampling parameters."""
    return Traits(openai_extras=True, sampling=False, efforts=_THREE)


def _gpt5(*efforts: Effort, effort_with_tools: bool = True) -> Traits:
    """Return the traits of a GPT-5 or newer model. Since 5.4, chat refuses efforts with tools."""
    return Traits(
        openai_extras=True,
        sampling=False,
        verbosity=True,
        custom_tools=True,
        efforts=efforts,
        effort_with_tools=effort_with_tools,
    )


# Models of OpenAI, also at Azure, for chat completions and responses.
_OPENAI: dict[str, Traits] = {
    "": _GPT,  # also unknown models
    "gpt-3.5": _OLD_GPT,
    "gpt-4": _OLD_GPT,
    "gpt-4-turbo": Traits(openai_extras=True, thinking="none", documents=False, structured="tool"),
    "gpt-4o": _PLAIN_GPT,
    "gpt-4.1": _PLAIN_GPT,
    "gpt-4.5": _PLAIN_GPT,
    "chatgpt-4o": _PLAIN_GPT,
    "o1": _o_series(),
    "o3": _o_series(),
    "o4": _o_series(),
    "gpt-5": _gpt5("minimal", *_THREE),
    "gpt-5-chat": _PLAIN_GPT,
    "gpt-5-pro": _gpt5("high"),
    "gpt-5.1": _gpt5(*_WITH_OFF),
    "gpt-5.1-codex": _gpt5(*_THREE),
    "gpt-5.1-codex-max": _gpt5(*_THREE, "xhigh"),
    "gpt-5.1-chat": _PLAIN_GPT,
    "gpt-5.2": _gpt5(*_WITH_OFF, "xhigh"),
    "gpt-5.2-chat": _PLAIN_GPT,
    "gpt-5.2-codex": _gpt5(*_THREE, "xhigh"),
    "gpt-5.3": _gpt5(*_THREE, "xhigh"),
    "gpt-5.4": _gpt5(*_WITH_OFF, "xhigh", effort_with_tools=False),
    "gpt-5.5": _gpt5(*_WITH_OFF, "xhigh", effort_with_tools=False),
    "gpt-5.6": _gpt5(*_WITH_OFF, "xhigh", "max", effort_with_tools=False),
    "gpt-6": _gpt5(*_WITH_OFF, "xhigh", "max", effort_with_tools=False),
    "gpt-oss": Traits(images=False, documents=False, efforts=_THREE),
}
# OpenAI models that only chat completions has.
_OPENAI_CHAT: dict[str, Traits] = {
    "gpt-4o-audio": Traits(openai_extras=True, thinking="none", images=False, audio=True),
    "gpt-4o-mini-audio": Traits(openai_extras=True, thinking="none", images=False, audio=True),
    "gpt-audio": Traits(openai_extras=True, thinking="none", images=False, audio=True),
    **dict.fromkeys(
        ("gpt-4o-search", "gpt-4o-mini-search", "gpt-5-search"),
        Traits(openai_extras=True, thinking="none", sampling=False, choices=False, search=True),
    ),
}

_GROQ = Traits(documents=False, thinking="none", structured="tool", choices=False, logprobs=False)
_GROQ_SCHEMA = Traits(documents=False, thinking="none", choices=False, logprobs=False)
_DEEPSEEK = Traits(
    images=False,
    documents=False,
    token_bound="max_tokens",
    structured="tool",
    efforts=("low", "medium", "high", "max"),
    reasoning_echo=True,
    thinking_switch=True,
    choices=False,
)
_PENALTIES: tuple[Refusable, ...] = ("frequency_penalty", "presence_penalty")


def _open(**more: Any) -> Traits:
    """Return the traits of a server of open models, with the given traits changed."""
    plain = Traits(documents=False, token_bound="max_tokens", efforts=_THREE)
    return replace(plain, **more)


_OPEN_SERVER = _open()
_ECHO = Traits(documents=False, token_bound="max_tokens", efforts=_THREE, reasoning_echo=True)

_MISTRAL = _open(
    thinking="none",
    documents=True,
    logprobs=False,
    call_ids="nine",
    refuses=("seed", "logit_bias", "end_user"),
)
_MOONSHOT = _open(
    thinking="none",
    structured="tool",
    reasoning_echo=True,
    thinking_switch=True,
    logprobs=False,
    refuses=("seed", "logit_bias", "end_user"),
)

# Vendors of chat completions besides OpenAI, by vendor and prefix of the model's name.
_CHAT: dict[tuple[str, str], Traits] = {
    ("demo", ""): Traits(openai_extras=True, verbosity=True, custom_tools=True, audio=True),
    # OpenRouter itself drops what a model does not accept.
    ("openrouter", ""): Traits(token_bound="max_tokens", audio=True, efforts=ALL_EFFORTS),
    ("deepseek", ""): _DEEPSEEK,
    ("groq", ""): _GROQ,
    ("groq", "gpt-oss"): Traits(
        images=False, documents=False, efforts=_THREE, choices=False, logprobs=False
    ),
    ("groq", "kimi"): _GROQ_SCHEMA,
    ("groq", "llama-4"): _GROQ_SCHEMA,
    ("ollama", ""): Traits(
        documents=False, token_bound="max_tokens", efforts=_WITH_OFF, choices=False
    ),
    ("gemini-chat", ""): _open(audio=True, efforts=("off", "minimal", *_THREE), logprobs=False),
    ("mistral", ""): _MISTRAL,
    **{
        ("mistral", prefix): replace(
            _MISTRAL, thinking="effort", efforts=("off", "high"), thinking_parts=True
        )
        for prefix in (
            *("mistral-small-latest", "mistral-small-4", "mistral-small-26"),
            *("mistral-medium-3-5", "mistral-medium-3.5"),
        )
    },
    ("mistral", "magistral"): replace(_MISTRAL, thinking_parts=True),
    ("xai", ""): _open(token_bound="max_completion_tokens", refuses=(*_PENALTIES, "logit_bias")),
    ("together", ""): _open(refuses=("end_user",)),
    ("fireworks", ""): _open(efforts=_WITH_OFF),
    ("cerebras", ""): _open(
        images=False,
        token_bound="max_completion_tokens",
        choices=False,
        refuses=(*_PENALTIES, "logit_bias"),
    ),
    ("nvidia", ""): _OPEN_SERVER,
    ("perplexity", ""): _open(
        thinking="none",
        choices=False,
        logprobs=False,
        refuses=("seed", "logit_bias", "end_user", "parallel_tools"),
    ),
    ("moonshot", ""): _MOONSHOT,
    # Their sampling parameters are fixed; any other value is an error.
    **{
        ("moonshot", prefix): replace(_MOONSHOT, sampling=False, choices=False)
        for prefix in ("kimi-k2.5", "kimi-k2.6", "kimi-k2.7", "kimi-k3")
    },
    # Takes neither forced tools nor schemas.
    ("zhipu", ""): _open(
        thinking="none",
        structured="none",
        thinking_switch=True,
        choices=False,
        logprobs=False,
        refuses=(*_PENALTIES, "seed", "logit_bias", "end_user", "parallel_tools"),
    ),
    ("minimax", ""): _open(
        thinking="none",
        structured="tool",
        choices=False,
        logprobs=False,
        refuses=(*_PENALTIES, "logit_bias"),
    ),
    ("alibaba", ""): _open(thinking="none", audio=True, refuses=("logit_bias", "end_user")),
    ("volcengine", ""): _open(
        efforts=("minimal", *_THREE),
        thinking_switch=True,
        choices=False,
        refuses=("seed", "end_user"),
    ),
    ("siliconflow", ""): _open(
        thinking="none", structured="tool", logprobs=False, refuses=("logit_bias", "end_user")
    ),
    ("cohere", ""): _open(
        efforts=("off", "high"),
        choices=False,
        refuses=("logit_bias", "parallel_tools", "end_user"),
    ),
    ("jina", ""): _open(
        efforts=_THREE, choices=False, logprobs=False, refuses=("seed", "logit_bias", "end_user")
    ),
    ("github-models", ""): _open(thinking="none", refuses=("logit_bias", "end_user")),
    **{
        ("github-models", prefix): Traits(sampling=False, documents=False, efforts=_THREE)
        for prefix in ("gpt-5", "o1", "o3", "o4")
    },
    ("huggingface", ""): _OPEN_SERVER,
    ("deepinfra", ""): _open(efforts=_WITH_OFF, refuses=("logit_bias",)),
    ("sambanova", ""): _open(
        choices=False, logprobs=False, refuses=(*_PENALTIES, "seed", "logit_bias", "end_user")
    ),
    ("vllm", ""): _OPEN_SERVER,
    ("llama-cpp", ""): _OPEN_SERVER,
    ("lm-studio", ""): _OPEN_SERVER,
    ("openai-compatible", ""): _OPEN_SERVER,
    # Open models that need their earlier reasoning back to continue after tool calls.
    **{
        ("openai-compatible", prefix): _ECHO
        for prefix in ("deepseek", "kimi-k2-thinking", "kimi-k2.", "kimi-k3", "mimo")
    },
}

# Vendors of responses besides OpenAI. None of them documents all of OpenAI's extras.
_RESPONSES: dict[tuple[str, str], Traits] = {
    ("demo", ""): Traits(openai_extras=True, verbosity=True, custom_tools=True, audio=True),
    ("openrouter", ""): Traits(efforts=ALL_EFFORTS, verbosity=True),
    ("groq", ""): _GROQ,
    ("groq", "gpt-oss"): Traits(images=False, documents=False, efforts=_THREE, logprobs=False),
    ("groq", "kimi"): _GROQ_SCHEMA,
    ("groq", "llama-4"): _GROQ_SCHEMA,
    ("ollama", ""): Traits(documents=False, efforts=_WITH_OFF, logprobs=False),
    **{
        (vendor, ""): Traits(documents=False, efforts=_THREE)
        for vendor in (
            *("fireworks", "volcengine", "huggingface", "vllm", "llama-cpp", "lm-studio"),
            "openai-compatible",
        )
    },
    ("xai", ""): Traits(efforts=_THREE, logprobs=False),
    ("alibaba", ""): Traits(documents=False, thinking="none", logprobs=False),
}

# Gemini, at any vendor of the generate_content family. Since the third generation thinking is set
# by levels, of which the larger models have fewer; before, by a budget. Before 2.5, schemas are
# accepted only in Gemini's own dialect.
_GEMINI_3_6 = Traits(audio=True, sampling=False, efforts=("minimal", *_THREE, "xhigh"))
_GEMINI: dict[str, Traits] = {
    "": Traits(audio=True),
    "gemini-3": Traits(audio=True, efforts=("minimal", *_THREE)),
    "gemini-3-pro": Traits(audio=True, efforts=("low", "high")),
    "gemini-3.1-pro": Traits(audio=True, efforts=_THREE),
    # Since 3.6: a deeper level, and no sampling. Names without a number mean the newest model.
    **dict.fromkeys(
        (
            *("gemini-3.6", "gemini-3.7", "gemini-3.8", "gemini-3.9", "gemini-4"),
            *("gemini-flash", "gemini-pro"),
        ),
        _GEMINI_3_6,
    ),
    "gemini-flash-lite": Traits(audio=True, efforts=("minimal", *_THREE)),
    "gemini-2.5": Traits(audio=True, thinking="budget", max_budget_tokens=24_576),
    "gemini-2.5-pro": Traits(audio=True, thinking="budget", efforts=ALL_EFFORTS[1:]),
    "gemini-2.0": Traits(audio=True, thinking="none", schemas="subset"),
    "gemini-1.5": Traits(audio=True, thinking="none", schemas="subset"),
}

_CLAUDE = Traits(
    sampling=False,
    thinking="adaptive",
    efforts=("low", "medium", "high", "xhigh", "max"),
    prefill=False,
)
_CLAUDE_SONNET_5 = replace(_CLAUDE, efforts=("off", *_CLAUDE.efforts))  # reasons by default
_CLAUDE_4_6 = Traits(thinking="adaptive", efforts=("low", "medium", "high", "max"), prefill=False)
_CLAUDE_4_5 = Traits(thinking="budget", max_budget_tokens=60_000)
_CLAUDE_4 = Traits(structured="tool", thinking="budget")
_CLAUDE_3_5 = Traits(structured="tool", thinking="none")
_CLAUDE_3 = Traits(structured="tool", thinking="none", documents=False)

# Claude, at any vendor of the messages family; some write the version with a point. Since 4.7
# models refuse thinking budgets and sampling; before 4.6 they know only budgets. They accept
# fewer strict tools in one call than agents send: operators may set strict_tools.
_CLAUDES: dict[str, Traits] = {
    "claude": _CLAUDE,  # also newer models
    "claude-sonnet-5": _CLAUDE_SONNET_5,
    "claude-fable-5": replace(_CLAUDE, forced_tools=False),  # always thinks
    **dict.fromkeys(("claude-opus-4-6", "claude-sonnet-4-6"), _CLAUDE_4_6),
    **dict.fromkeys(("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"), _CLAUDE_4_5),
    **dict.fromkeys(("claude-opus-4-1", "claude-opus-4-0", "claude-opus-4-2025"), _CLAUDE_4),
    **dict.fromkeys(("claude-sonnet-4-0", "claude-sonnet-4-2025", "claude-3-7"), _CLAUDE_4),
    "claude-3-5": _CLAUDE_3_5,
    "claude-3": _CLAUDE_3,
}
_MESSAGES: dict[tuple[str, str, str], Traits] = {
    ("", "messages", ""): Traits(thinking="budget"),
    ("deepseek", "messages", ""): Traits(
        images=False,
        documents=False,
        structured="tool",
        thinking="budget",
        auto_cache=False,
        reasoning_echo=True,
    ),
    **{
        (vendor, "messages", ""): Traits(thinking="budget", structured="tool", auto_cache=False)
        for vendor in (
            *("fireworks", "zhipu", "minimax", "alibaba", "siliconflow", "deepinfra"),
            *("vllm", "llama-cpp", "lm-studio"),
        )
    },
    # Kimi since K2.5 does not sign its thoughts, and wants them back.
    ("moonshot", "messages", ""): Traits(
        thinking="budget", structured="tool", auto_cache=False, reasoning_echo=True
    ),
    ("ollama", "messages", ""): Traits(
        documents=False, structured="none", thinking="budget", auto_cache=False
    ),
    **{
        ("", "messages", name): traits
        for prefix, traits in _CLAUDES.items()
        for name in (prefix, re.sub(r"(\d)-(\d)$", r"\1.\2", prefix))
    },
    # Anthropic's own web search; other vendors of its models may lack it.
    **{
        ("anthropic", "messages", prefix): replace(traits, search=True)
        for prefix, traits in _CLAUDES.items()
        if prefix != "claude-3"
    },
}

# (vendor, "" for any; family; prefix of the upstream's model name) -> traits
TABLE: dict[tuple[str, str, str], Traits] = {
    **{
        (vendor, family, prefix): traits
        for vendor in ("openai", "azure-openai")
        for family in ("chat_completions", "responses")
        for prefix, traits in _OPENAI.items()
    },
    **{
        (vendor, "chat_completions", prefix): traits
        for vendor in ("openai", "azure-openai")
        for prefix, traits in _OPENAI_CHAT.items()
    },
    **{(vendor, "chat_completions", prefix): traits for (vendor, prefix), traits in _CHAT.items()},
    **{(vendor, "responses", prefix): traits for (vendor, prefix), traits in _RESPONSES.items()},
    **{
        ("", "generate_content", prefix): replace(
            traits, search_beside_functions=prefix >= "gemini-3"
        )
        for prefix, traits in _GEMINI.items()
    },
    **_MESSAGES,
}


def traits_of(
    vendor: str, family: str, model: str, options: Mapping[str, object] | None = None
) -> Traits:
    """Return a model's traits. Raises msgspec.ValidationError if ``options`` are invalid."""
    traits = _of_table(vendor, family, model)
    if not options:
        return traits
    return msgspec.convert(msgspec.to_builtins(traits) | dict(options), Traits)


@lru_cache(maxsize=1024)
def _of_table(vendor: str, family: str, model: str) -> Traits:
    """Return the row with the longest prefix. The vendor's own row wins over one for any vendor."""
    name = model.rpartition("/")[2].lower()
    rows = [
        (len(prefix), bool(of), traits)
        for (of, spoken, prefix), traits in TABLE.items()
        if spoken == family and of in ("", vendor) and name.startswith(prefix)
    ]
    return max(rows, key=lambda row: row[:2])[2] if rows else Traits()


def _form(kind: Any) -> str:
    """Describe the values of a trait."""
    if get_origin(kind) is tuple:
        return f"a list of at least one, each {_form(get_args(kind)[0])}"
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    return {bool: "true or false", int: "a whole number above 0", str: "a word"}[kind]


class _Options(Traits, frozen=True):
    """The options of a channel: the traits of its models, and how its account is billed."""

    # service tier of calls that ask for none, as set in the account's project
    default_tier: str = ""
    # generate_content: Google bills each search of a grounded answer, or each grounded call
    grounding: Literal["query", "call"] = "query"


OPTIONS: Mapping[str, str] = {name: _form(kind) for name, kind in get_type_hints(_Options).items()}
"""The options of a channel, each with a description of its valid values."""


def is_option(name: str, value: object) -> bool:
    """Return true if an option of a channel may have this value."""
    try:
        msgspec.convert({name: value}, _Options)
    except msgspec.ValidationError:
        return False
    if name not in OPTIONS or value in ([], ""):
        return False
    return not isinstance(value, int) or value is False or value > 0
