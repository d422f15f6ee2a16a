"""What a small call of the gateway's own goes to. Without the upstream client, which costs memory
in processes that seldom make one."""

from dataclasses import dataclass

from adapters.family import Family, Operation
from adapters.registry import FAMILIES
from store.catalog.catalog import Channel


@dataclass(frozen=True, slots=True)
class Target:
    """What is called: a model of a channel (its public name) with one of its keys ("": none)."""

    channel: Channel
    model: str
    key: str
    stream: bool

    @property
    def upstream_model(self) -> str:
        """The model's name at the channel."""
        return self.channel.models[self.model]

    @property
    def family(self) -> Family:
        """What the channel speaks."""
        return FAMILIES[self.channel.family]

    @property
    def operation(self) -> Operation:
        """What of the family is called."""
        return self.family.upstream.operations["stream" if self.stream else "generate"]
