"""`model create --from-catalogue` and `model prices pull`."""

import json

import pytest

from operations.catalogue import entries

PRICE = {"input": "2", "output": "8"}


@pytest.fixture
def pull(installation):
    """Return pull({name: {field: price}}, *options), which returns the ended command."""
    installation.apply(
        {"model": [{"name": "one", "price": PRICE}, {"name": "two", "price": PRICE}]}
    )

    def run(fields, *options):
        content = {
            n: {"litellm_provider": "openai", "mode": "chat", **f} for n, f in fields.items()
        }
        file = installation.folder / "list.json"
        file.write_text(json.dumps(content))
        return installation.run(
            "model", "prices", "pull", "--from", "litellm", "--file", str(file), *options
        )

    return run


def test_a_model_is_made_from_the_catalogue(installation):
    entry = next(entry for entry in entries() if entry.rate and entry.of_maker)
    installation.ok("model", "create", entry.name, "--from-catalogue")
    model = installation.json("model", "show", entry.name)
    assert (model["context_tokens"], model["max_output_tokens"]) == (
        *(entry.context_tokens, entry.max_output_tokens),
    )
    assert model["price"] == {"call": "0", **entry.price}
    assert len(model["rate"]) == len(entry.rate)
    assert model["price_source"] == f"catalogue {entry.date} ({entry.source})"
    installation.ok(
        *("model", "create", "mine", f"--from-catalogue={entry.key}", "context_tokens=9"),
        "price.input=77",
    )
    mine = installation.json("model", "show", "mine")
    assert mine["context_tokens"] == 9
    assert mine["price"] == {**model["price"], "input": "77"}
    installation.ok("model", "create", "--from-catalogue", "grok-4.7", "price.call=2")
    assert installation.json("model", "show", "grok-4.7")["price"]["call"] == "2"
    assert 'no model "nobodys"' in installation.refused(
        "model", "create", "nobodys", "--from-catalogue"
    )


def test_prices_of_a_list_are_shown_and_taken(installation, pull):
    rows = {
        "one": {"input_cost_per_token": 2.5e-06, "output_cost_per_token": 0},
        "two": {"input_cost_per_token": 2e-05, "output_cost_per_token": 9e-06},
        "three": {"input_cost_per_token": 1e-06, "output_cost_per_token": 1e-06},
    }
    ended = pull(rows, "--dry-run")
    assert ended.code == 0 and "2 prices of 2 models would change" in ended.err
    assert "never to zero" in ended.out and "rises by 900 %" in ended.out
    assert installation.json("model", "show", "one")["price"]["input"] == "2"
    data = json.loads(pull(rows, "--json", "--accept-rises", "900").out)
    assert [(row["model"], row["meter"], row["after"]) for row in data["changes"]] == [
        *(("one", "input", "2.5"), ("two", "input", "20"), ("two", "output", "9")),
    ]
    assert [(row["meter"], row["refused"]) for row in data["refused"]] == [
        ("output", "never to zero")
    ]
    assert data["source"].startswith("litellm 20") and data["unmatched"] == {}
    shown = installation.json("model", "show", "two")
    assert (shown["price"]["input"], shown["price_source"]) == ("20", data["source"])
    assert "three" not in installation.ok("model", "list")
    assert pull(rows, "--model", "thre").code == 1
    assert pull({}, "--accept-rises", "-1").code == 2
    assert pull({}, "--fetch").code == 2


def test_a_gateway_with_another_currency_takes_no_dollars(pull, monkeypatch):
    monkeypatch.setenv("SLUICE_MONEY__CURRENCY", "EUR")
    ended = pull({"one": {"input_cost_per_token": 1e-06}})
    assert ended.code == 1 and "money.currency is EUR" in ended.err
