"""Times both homes, models, prices and wallet of an administrator over the Hub's port.

    python -m tools.bench.hub_overview --store sqlite:////tmp/bench.db --user user-1
    python -m tools.bench.hub_overview --store sqlite:////tmp/bench.db --user user-1 --path /usage

The store is that of status.py (200 channels and models) or of usage_records.py (millions of calls).
An administrator of the name is created if there is none. Prints for each page the median and the
95th percentile of the elapsed time, the CPU of the process, and the size.
"""

import click

from tools.bench.harness import page_figures, serve, session_of, site_of, store, store_option

PATHS = (
    *("/?of=me", "/models", "/models?state=available&takes=pdf", "/models/model-1", "/wallet"),
    *("/admin/models", "/admin/prices/edit", "/admin/prices/compare"),
    "/api/status?group={group}",
    *(f"/?of=gateway&wait=1&by={by}" for by in ("models", "users", "channels", "keys")),
    "/?of=gateway",
)


@click.command()
@store_option
@click.option("--user", required=True, help="Whose pages.")
@click.option("--group", default="group-1", help="Of the JSON of channel status.")
@click.option("--path", "paths", multiple=True, default=PATHS, help="Other pages than these.")
def main(url: str, user: str, group: str, paths: tuple[str, ...]) -> None:
    """Print how long each page takes."""
    with store(url) as db:
        cookie, port = session_of(db, user), serve(site_of(db))
        for path in paths:
            path = path.format(group=group)
            click.echo(f"{path:32} {page_figures(port, path, cookie)}")


if __name__ == "__main__":
    main()
