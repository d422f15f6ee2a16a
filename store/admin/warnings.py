"""What of a document is no fault but hardly does what was meant: objects without effect.

Pure. For apply.py.
"""

from store.admin.document import Document
from store.admin.plan import Final

EVERYTHING = "*"


def warnings_of(final: Final, document: Document) -> list[str]:
    """A sentence for each group and model without a channel, and each channel without keys or with
    everything shared, that the document names; `final` is what the store holds in the end."""
    channels = [fields for (kind, _), fields in final.items() if kind == "channel"]
    grouped = {group for fields in channels for group in fields["groups"]}
    served = {model for fields in channels for model in fields["models"]}
    found = []
    for entry in document:
        fields = final.get((entry.kind, entry.identity))
        if fields is None:  # a key that was revoked
            continue
        name = entry.identity[-1]
        if entry.kind == "group" and name not in grouped:
            found.append(
                f"{entry.where()}: no channel has it in its groups: its keys can call nothing"
            )
        if entry.kind == "model" and name not in served:
            found.append(f"{entry.where()}: no channel has it in its models: no call gets it")
        if entry.kind == "channel" and not fields["keys"]:
            found.append(
                f"{entry.where()}: it has no keys: calls go out without a credential, which is"
                " right only for a server that asks for none"
            )
        if entry.kind == "channel" and EVERYTHING in fields["shared_ids"]:
            found.append(
                f"{entry.where()}: its shared_ids are all ids: every user of its groups can use"
                " whatever its account keeps"
            )
    return found
