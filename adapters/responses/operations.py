"""What can be asked for in the responses family. Imported by its two sides."""

from adapters.family import Operation

_RESPONSE = "/v1/responses/{id}"

OPERATIONS: dict[str, Operation] = {
    one.job: one
    for one in (
        Operation("/v1/responses"),
        Operation("/v1/responses/input_tokens", "count", free=True),
        Operation("/v1/responses/compact", "compact"),
        Operation(_RESPONSE, "stored", free=True, stored=True),
        Operation(_RESPONSE + "/cancel", "cancel", free=True, stored=True),
        Operation(_RESPONSE + "/input_items", "list_input", free=True, stored=True),
    )
}
