"""A form as a request: its fields are read like those of a JSON object."""

from collections.abc import Sequence
from typing import Any

from adapters.family.estimate import IMAGE_BOUND_TOKENS
from adapters.faults import Condition, Fault, doubled_field
from adapters.framing.multipart import FormError, Part
from adapters.json.jsonio import Span, Spans

AUDIO_TOKENS_PER_S = 50  # more than any vendor counts
AUDIO_BYTES_PER_S = 4000  # for a file of unknown length
_LISTS = "[]"  # the end of the name of a field that may be repeated


class Form(Spans, frozen=True):
    """The fields of a form. ``body`` is empty if it is on disk; ``places`` are those of the
    contents in the body. ``files``: the places of all files. ``audio_ms``: length of the sound."""

    texts: dict[str, str]
    files: tuple[Span, ...]
    audio_ms: int = 0

    def value(self, name: str) -> Any:
        """Return the text of a field; None if it is absent or a file."""
        return self.texts.get(name)

    @property
    def media_tokens(self) -> int:
        """Return more tokens than are likely to be billed for the files."""
        if self.audio_ms:
            return self.audio_ms * AUDIO_TOKENS_PER_S // 1000
        return len(self.files) * IMAGE_BOUND_TOKENS


def form_of(parts: Sequence[Part], body: bytes) -> Form:
    """Return the form made of its parts. Raises Fault INVALID_FIELD for a duplicate field."""
    places: dict[str, Span] = {}
    texts: dict[str, str] = {}
    for part in parts:
        if part.name in places and not part.name.endswith(_LISTS) and part.text is not None:
            raise doubled_field(part.name[:128])
        places[part.name] = Span(part.start, part.end)
        if part.text is not None:
            try:
                texts[part.name] = part.text.decode()
            except UnicodeDecodeError:
                raise malformed(FormError(f"'{part.name[:64]}' is not UTF-8")) from None
    files = tuple(Span(part.start, part.end) for part in parts if part.text is None)
    return Form(body, 0, places, texts, files)


def malformed(error: FormError) -> Fault:
    """Return the fault for a body that is no form."""
    return Fault(Condition.INVALID_FIELD, f"The form is malformed: {error}.")
