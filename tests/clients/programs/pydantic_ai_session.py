"""Sessions with agents of pydantic-ai; `api` is the family of their model."""

import asyncio

from pydantic_ai import Agent, UsageLimits
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.google import GoogleModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.google import GoogleProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.run import AgentRunResultEvent
from workshop import ROUNDS_MAX, TOOLS, play


def model_of(told):
    """Return the model of a family."""
    base, key, api = told["base_url"], told["key"], told["api"]
    if api == "messages":
        provider = AnthropicProvider(base_url=base, api_key=key)
        return AnthropicModel("claude-sonnet-4-6", provider=provider)
    if api == "generate_content":
        provider = GoogleProvider(base_url=base, api_key=key)
        return GoogleModel("gemini-3.1-pro-preview", provider=provider)
    provider = OpenAIProvider(base_url=base + "/v1", api_key=key)
    kind = OpenAIResponsesModel if api == "responses" else OpenAIChatModel
    return kind("gpt-4o", provider=provider)


async def play_one(told, prompt):
    agent = Agent(model_of(told), tools=list(TOOLS.values()), instructions="You edit files.")
    limits = UsageLimits(request_limit=ROUNDS_MAX)
    if not told["streamed"]:
        return (await agent.run(prompt, usage_limits=limits)).output
    async with agent.run_stream_events(prompt, usage_limits=limits) as events:
        async for event in events:
            if isinstance(event, AgentRunResultEvent):
                return event.result.output
    raise AssertionError("the session has no result")


def session(told, prompt):
    return asyncio.run(play_one(told, prompt))


play(session)
