"""`code`: redeem codes. A code is shown only when it is created."""

from collections.abc import Callable
from typing import Any

import click

from commands.edits import EDITS, Edits, print_outcome
from commands.nouns.wallet import USER, Amount, named_user, print_line
from commands.output import note, print_fields, print_result, print_table
from commands.store_access import Access, actor, on_store
from commands.subcommands import Noun
from operations.edits import create_codes
from store.admin.apply import ObjectChange, Outcome
from store.db.database import database_ms
from store.money import codes
from store.values.fields import Instant

ID = click.argument("code", metavar="ID")
COLUMNS = ("id", "code", "amount", "status", "expires_at", "created_at", "redeemed_at", "user")

command = Noun(
    "code", help="Create, list, edit and redeem codes worth money.", no_args_is_help=True
)


class Expiry(click.ParamType[int]):
    """A time with its time zone, passed to the command in milliseconds since 1970."""

    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return Instant().parse(str(value))
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


@command.command()
@click.option("-n", "count", type=int, default=1, show_default=True, help="Number of codes.")
@click.option("--amount", type=Amount(), required=True, help="Value of each code.")
@click.option("--expires", type=Expiry(), help='Expiry, like "2027-01-01T00:00:00Z".')
@on_store
def create(access: Access, count: int, amount: int, expires: int | None, as_json: bool) -> None:
    """Create codes and print them; they are not shown again."""
    batch = codes.NewCodes(count, amount, expires)
    rows = create_codes(access.db, batch, access.secrets().peppers[0], actor())
    print_table(rows, ("id", "code", "amount", "expires_at"), as_json)
    if not as_json:
        note("Codes are shown once: save them now.")


@command.command("list")
@on_store
def list_codes(access: Access, as_json: bool) -> None:
    """List codes; only the last four characters of each are stored."""
    listed, at_ms = codes.list_codes(access.db), database_ms(access.db)
    rows = [codes.public(code, at_ms) for code in listed]
    print_table(rows, COLUMNS, as_json)
    if not rows and not as_json:
        note("no codes; create some: ./sluice code create -n 50 --amount 10")


@command.command("show")
@ID
@on_store
def show_code(access: Access, code: str, as_json: bool) -> None:
    """Show one code, given by id."""
    print_fields(codes.public(codes.show(access.db, code), database_ms(access.db)), as_json)


@command.command("set")
@ID
@EDITS
@on_store
def set_fields(access: Access, code: str, edits: Edits, as_json: bool) -> None:
    """Change fields of a code, given by id; refused if it has been used.

    \b
    FIELD=VALUE:
      amount; expires_at, as in 2027-01-01T00:00:00Z, or empty for no expiry: expires_at=
    """
    changed = codes.set_fields(access.db, code, edits, actor())
    print_outcome(Outcome([ObjectChange("code", code, "update")] if changed else [], []), as_json)


def _of_all(name: str, done: str, change: Callable[..., int]) -> click.Command:
    summary = f"{name.capitalize()} codes, all or none; refused if one has been used."

    @click.command(name, help=summary)
    @click.argument("ids", nargs=-1, required=True, metavar="ID...")
    @on_store
    def verb(access: Access, ids: tuple[str, ...], as_json: bool) -> None:
        changed = change(access.db, ids, actor())
        text = f"{changed} {done}" if changed else "nothing to change"
        print_result(as_json, {done: changed}, text)

    return verb


command.add_command(_of_all("disable", "disabled", codes.disable))
command.add_command(_of_all("enable", "enabled", codes.enable))
command.add_command(_of_all("remove", "removed", codes.remove))


@command.command()
@USER
@click.argument("code")
@on_store
def redeem(access: Access, user: str, code: str, as_json: bool) -> None:
    """Credit a code to a wallet, once. Case, blanks and hyphens are ignored."""
    with named_user(access, user):
        line = codes.redeem(access.db, user, code, access.secrets().peppers, actor())
    print_line(user, line, as_json)
