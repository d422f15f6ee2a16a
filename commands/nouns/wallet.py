"""`wallet`: balances of users, and the ledger that explains them. Amounts are decimal strings."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from commands.output import note, print_fields, print_table
from commands.store_access import Access, actor, on_store
from commands.subcommands import Noun
from store.admin.export import show as show_object
from store.money import wallet
from store.money.ledger import Line, to_public
from store.values.errors import NotFound
from store.values.pricing import AmountError, parse_money
from store.values.usage_record import rfc3339

LEDGER_COLUMNS = ("at", "kind", "amount", "balance_after", "reference", "reason")

USER = click.option("--user", required=True, help="Name of the user.")

command = Noun("wallet", help="Show, credit, debit and refund wallets.", no_args_is_help=True)


class Amount(click.ParamType[int]):
    """An amount of money, passed to the command in nanos."""

    name = "amount"

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return parse_money(str(value))
        except AmountError as error:
            self.fail(str(error), param, ctx)


@command.command()
@USER
@on_store
def show(access: Access, user: str, as_json: bool) -> None:
    """Show a balance, the holds of calls in flight, and what is leased to workers."""
    with named_user(access, user):
        view = wallet.show(access.db, user)
    print_fields(wallet.to_public(view, access.currency), as_json)


@command.command()
@USER
@on_store
def ledger(access: Access, user: str, as_json: bool) -> None:
    """List the lines of a ledger, oldest first; the charges of a UTC day are one line."""
    with named_user(access, user):
        lines = [to_public(line) for line in wallet.ledger(access.db, user)]
    print_table(lines, LEDGER_COLUMNS, as_json)


def _movement(name: str, summary: str, move: Callable[..., Line]) -> click.Command:
    @click.command(name, help=summary)
    @USER
    @click.option("--amount", type=Amount(), required=True, help='A decimal number like "12.50".')
    @click.option("--reason", required=True, help="Reason, kept in the ledger.")
    @click.option("--id", "own_id", help="Idempotency id: a movement is booked once per id.")
    @on_store
    def verb(access: Access, as_json: bool, user: str, **given: Any) -> None:
        movement = wallet.Movement(given["amount"], given["reason"], given["own_id"], actor())
        with named_user(access, user):
            line = move(access.db, user, movement)
        if line.again:
            when = rfc3339(line.at_ms)
            note(f"{movement.idempotency_id} was already booked at {when}: nothing changed")
        print_line(user, line, as_json)

    return verb


command.add_command(_movement("credit", "Add money to a wallet.", wallet.credit))
command.add_command(
    _movement("debit", "Take money from a wallet; refused below zero.", wallet.debit)
)


@command.command()
@click.option("--call", required=True, metavar="ID", help="x-request-id of the call.")
@click.option("--amount", type=Amount(), help="Part of it.  [default: the rest of the charge]")
@click.option("--reason", help="Reason, kept in the ledger.  [default: refund of call ID]")
@click.option("--id", "own_id", help="Idempotency id: a part is booked once per id.")
@on_store
def refund(access: Access, as_json: bool, call: str, **given: Any) -> None:
    """Refund the charge of a call to a wallet, in full or in part.

    Refunds never exceed the charge. Repeated without --amount, or with the same --id, it changes
    nothing.
    """
    order = wallet.RefundOrder(given["amount"], given["reason"], given["own_id"], actor())
    done = wallet.refund(access.db, call, order)
    if done.again:
        when = rfc3339(done.line.at_ms)
        note(f"the call {call} was already refunded at {when}: nothing changed")
    print_line(done.user, done.line, as_json)


def print_line(user: str, line: Line, as_json: bool) -> None:
    """Print a movement and its user."""
    print_fields({"user": user, **to_public(line)}, as_json)


@contextmanager
def named_user(access: Access, user: str) -> Iterator[None]:
    """Add the nearest name to the error for a user that does not exist."""
    try:
        yield
    except NotFound:
        show_object(access.db, "user", user)  # raises NotFound with the nearest name
        raise
