"""`model`: models, listed and edited one by one, created from the catalogue; prices of a list."""

from typing import Any

import click

from commands.edits import NEW_FIELDS, Edits, editor, print_outcome
from commands.nouns.kinds import edit_help, noun
from commands.store_access import Access, on_store
from commands.subcommands import LazyVerb, Noun
from operations import catalogue

command = noun(
    "model",
    ("name", "enabled", "context_tokens", "max_output_tokens", "price"),
    "With from=TIME (2027-01-01T00:00:00Z), set schedules the given prices: they apply from then"
    " on, by the store's clock, in every worker. price_changes= cancels scheduled prices.",
)
prices = Noun("prices", help="Compare prices with public lists.", no_args_is_help=True)
prices.add_command(
    LazyVerb("pull", "commands.nouns.model_prices", "Apply the prices of a public list.")
)
command.add_command(prices)

BARE = "--from-catalogue"
FROM_CATALOGUE = (
    "--from-catalogue takes limits, prices and rates of the model of this name from"
    " conf/catalogue.toml, from its maker's entry; --from-catalogue=VENDOR/NAME from another. Given"
    " fields take precedence."
)


class BareOption(click.Command):
    """A command whose option --from-catalogue takes a value only after `=`, so that the next word
    is an argument."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f"{arg}=" if arg == BARE else arg for arg in args])


@command.command(
    "create", cls=BareOption, help=edit_help("Create a model.", "model", FROM_CATALOGUE)
)
@click.argument("name", metavar="NAME")
@click.option(
    BARE,
    metavar="[=VENDOR/NAME]",
    help="Take fields that are not given from the catalogue.",
)
@NEW_FIELDS
@on_store
def create(
    access: Access, name: str, from_catalogue: str | None, edits: Edits, as_json: bool
) -> None:
    """Create a model."""
    fields: dict[str, Any] = {}
    if from_catalogue is not None:
        fields = catalogue.find(name, from_catalogue).fields()
    print_outcome(editor(access).create("model", name, {**fields, **edits}), as_json)
