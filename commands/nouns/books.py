"""`books`: the check of wallets, ledger, records and leases against each other."""

import click

from commands.output import FAILED, print_result
from commands.progress import progress
from commands.store_access import Access, on_store
from commands.subcommands import Noun
from commands.times import since_option
from store.db.database import place
from store.money.books import release_node as release
from store.money.books import verify as verify_books
from store.upkeep.lease import BOOKS_VERIFY, note_done
from store.values.ids import day_at
from store.values.pricing import format_money

command = Noun("books", help="Verify the books; release a lost node.", no_args_is_help=True)


@command.command()
@since_option
@on_store
def verify(access: Access, as_json: bool, since_ms: int | None) -> int:
    """Verify all wallets, leases and daily charges; exit code 1 if anything differs.

    --since limits the check of charges to that day (UTC) and later; wallets and leases are always
    checked in full.
    """
    since_day = 0 if since_ms is None else day_at(since_ms)
    with progress(as_json) as line:
        faults = verify_books(access.db, lambda day: line.tell(f"verifying {day}"), since_day)
    if not faults:
        note_done(access.db, BOOKS_VERIFY)
    store = place(access.db)
    plain = {"ok": not faults, "store": store, "faults": faults}
    print_result(as_json, plain, "\n".join(faults) or f"the books of {store} are correct")
    return FAILED if faults else 0


@command.command("release-node")
@click.argument("node")
@on_store
def release_node(access: Access, node: str, as_json: bool) -> None:
    """Release the leases of NODE, a machine that is permanently lost.

    Spending that it had not booked yet is lost with its journal. A node that is only stopped
    returns its leases itself at its next start.
    """
    released = release(access.db, node)
    amount = format_money(released.nanos)
    plain = {"node": node, "leases": released.leases, "amount": amount}
    text = f"released {released.leases} leases of {node}, {amount} in total"
    print_result(as_json, plain, text)
