"""Sessions with LangChain's chat models; `api` is their family."""

from functools import reduce
from operator import add

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_google_genai import ChatGoogleGenerativeAI
from langchain_openai import ChatOpenAI
from workshop import ROUNDS_MAX, TOOLS, call, play


def model_of(told):
    """Return the chat model of a family."""
    base, key, api = told["base_url"], told["key"], told["api"]
    if api == "messages":
        return ChatAnthropic(
            model="claude-sonnet-4-6", base_url=base, api_key=key, max_retries=0, max_tokens=4000
        )
    if api == "generate_content":
        return ChatGoogleGenerativeAI(
            model="gemini-3.1-pro-preview", base_url=base, google_api_key=key, max_retries=1
        )
    return ChatOpenAI(
        model="gpt-4o",
        base_url=base + "/v1",
        api_key=key,
        max_retries=0,
        use_responses_api=api == "responses",
    )


def session(told, prompt):
    model = model_of(told).bind_tools(list(TOOLS.values()))
    history = [SystemMessage("You edit files."), HumanMessage(prompt)]
    for _ in range(ROUNDS_MAX):
        streamed = told["streamed"]
        answer = reduce(add, model.stream(history)) if streamed else model.invoke(history)
        if not answer.tool_calls:
            return answer.text if isinstance(answer.text, str) else answer.text()
        history.append(answer)
        for made in answer.tool_calls:
            gave = call(made["name"], made["args"])
            history.append(ToolMessage(gave, tool_call_id=made["id"], name=made["name"]))
    raise AssertionError("the session does not end")


play(session)
