"""By which entries a channel can be asked for a model, and whether its answers are translated.

What the status of channels shows; calls are decided by the snapshot (``store.catalog.catalog``),
by the same rules.
"""

from collections.abc import Iterable, Mapping

from store.catalog.catalog import Group, Losses, losses_to

NATIVE = "native"


class Entries:
    """Of all channels; `groups` by name, `losses`: what can be translated."""

    def __init__(self, groups: Iterable[Group], losses: Losses) -> None:
        self._groups = {group.name: group for group in groups}
        self._losses = losses
        self._known: dict[tuple[str, bool, frozenset[str]], Mapping[str, str]] = {}

    def of(
        self, family: str, groups: frozenset[str], model: str, *, translate: bool
    ) -> Mapping[str, str]:
        """Family of the entry -> native, or from which family it is translated: for a model of a
        channel that speaks `family` and takes calls of these groups."""
        # Channels are many, and few differ in this.
        serving = frozenset(name for name in groups if self._permits(name, model))
        key = (family, translate, serving)
        entries = self._known.get(key)
        if entries is None:
            entries = self._known[key] = self._of(family, serving, translate=translate)
        return entries

    def _permits(self, name: str, model: str) -> bool:
        group = self._groups.get(name)
        return group is not None and (group.models is None or model in group.models)

    def _of(self, family: str, names: Iterable[str], *, translate: bool) -> Mapping[str, str]:
        open_to = losses_to(family, self._losses) if translate else {}
        entries = {}
        for group in (self._groups[name] for name in names):
            if family in group.entries:
                entries[family] = NATIVE
            if group.translate:
                # between equals the order of names, so that it is always the same
                for entry in sorted(group.entries & open_to.keys()):
                    entries[entry] = f"translated from {family}"
        return dict(sorted(entries.items(), key=lambda item: (item[1] != NATIVE, item[0])))
