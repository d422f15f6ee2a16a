// Texts with values: `{name}` is replaced by a value, `{name:call|calls}` by the singular or plural for it.
const BRACES = /\{(\w+)(?::([^|{}]*)\|([^{}]*))?\}/g;

/** Returns a text with its values filled in. Numbers have thousands separators. */
export function phrase(text, values) {
  return text.replace(BRACES, (whole, name, singular, plural) => {
    const value = values[name] ?? whole;
    const written = typeof value === "number" ? value.toLocaleString("en") : String(value);
    if (plural === undefined) return written;
    return written === "1" ? singular : plural;
  });
}
