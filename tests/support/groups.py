"""Groups as the catalogue has them."""

from store.catalog.catalog import Group


def group(name, multiplier_ppm=1_000_000, models=None, entries=("chat_completions",)):
    """A group that is not disabled."""
    names = None if models is None else frozenset(models)
    return Group(name, multiplier_ppm, names, frozenset(entries), False)
