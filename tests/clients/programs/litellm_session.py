"""Sessions with LiteLLM's client; `api` is its family."""

import inspect
import json

import litellm
from workshop import ROUNDS_MAX, TOOLS, call, play

litellm.telemetry = False
litellm.suppress_debug_info = True

SCHEMAS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": tool.__doc__,
            "parameters": {
                "type": "object",
                "properties": {
                    parameter: {"type": "string"}
                    for parameter in inspect.signature(tool).parameters
                },
                "required": list(inspect.signature(tool).parameters),
            },
        },
    }
    for name, tool in TOOLS.items()
]
MODELS = {
    "chat_completions": ("openai/gpt-4o", "/v1"),
    "messages": ("anthropic/claude-sonnet-4-6", ""),
    "generate_content": ("gemini/gemini-3.1-pro-preview", "/v1beta"),
}


def session(told, prompt):
    model, path = MODELS[told["api"]]
    history = [
        {"role": "system", "content": "You edit files."},
        {"role": "user", "content": prompt},
    ]
    for _ in range(ROUNDS_MAX):
        answer = litellm.completion(
            model=model,
            api_base=told["base_url"] + path,
            api_key=told["key"],
            messages=history,
            tools=SCHEMAS,
            stream=told["streamed"],
            num_retries=0,
        )
        if told["streamed"]:
            answer = litellm.stream_chunk_builder(list(answer), messages=history)
        message = answer.choices[0].message
        if not message.tool_calls:
            return message.content
        history.append(message.model_dump())
        for made in message.tool_calls:
            gave = call(made.function.name, json.loads(made.function.arguments))
            history.append({"role": "tool", "tool_call_id": made.id, "content": gave})
    raise AssertionError("the session does not end")


play(session)
