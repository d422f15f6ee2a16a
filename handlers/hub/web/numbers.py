"""How pages write numbers: money, tokens, seconds, shares. Templates know these by name."""

from decimal import Decimal

MINUS = "−"
UNKNOWN = "–"
LIST_DECIMALS = 4
THOUSAND, MILLION, BILLION = 10**3, 10**6, 10**9


def money(amount: str | Decimal | None, decimals: int | None = LIST_DECIMALS) -> str:
    """An amount given as decimal text: with 4 decimals in lists, with all of them (`decimals` None)
    in a call and in the ledger; "0" when there is nothing, "–" when it is unknown."""
    if amount is None:
        return UNKNOWN
    value = Decimal(amount)
    if value == 0:
        return "0"
    if decimals is None:
        text = f"{abs(value):,f}"
    else:
        unit = Decimal(1).scaleb(-decimals)
        if abs(value) < unit / 2:
            return f"<{unit}"
        text = f"{abs(value):,.{decimals}f}"
    return MINUS + text if value < 0 else text


def count(number: int | None) -> str:
    """A whole number with thousands separators."""
    return UNKNOWN if number is None else f"{number:,}"


def brief(number: int | None) -> str:
    """A whole number for summaries: 9.21 M, 52 k, 812."""
    if number is None:
        return UNKNOWN
    for unit, name in ((BILLION, "G"), (MILLION, "M")):
        if number >= unit:
            return f"{number / unit:.2f} {name}"
    return f"{number / THOUSAND:.0f} k" if number >= 10 * THOUSAND else f"{number:,}"


def seconds(ms: float | None) -> str:
    """Milliseconds as seconds with 2 decimals."""
    return UNKNOWN if ms is None else f"{ms / 1000:,.2f}"


def milliseconds(ms: float | None) -> str:
    """A short time: with 1 decimal below 10."""
    if ms is None:
        return UNKNOWN
    return f"{ms:.1f}" if ms < 10 else f"{ms:,.0f}"


def share(part: float | None) -> str:
    """A share of 1 as percent with 2 decimals, never rounded up to 100."""
    if part is None:
        return UNKNOWN
    percent = 100 * part
    return "99.99" if 99.99 < percent < 100 else f"{percent:.2f}"


def text_of_size(size: int | None) -> str:
    """Bytes for a person: 812 B, 1.4 MiB."""
    if size is None:
        return UNKNOWN
    value, unit = float(size), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


_ALL = (money, count, brief, seconds, milliseconds, share, text_of_size)
FUNCTIONS = {one.__name__: one for one in _ALL}
"""What templates may call."""
