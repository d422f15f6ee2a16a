// Texts of the page that a script fills in: `{name}` is a value, `{name:call|calls}` its singular or plural.
const BRACES = /\{(\w+)(?::([^|{}]*)\|([^{}]*))?\}/g;

/** Returns a text with its values, each in its number; numbers with their thousands apart. */
export function phrase(text, values) {
  return text.replace(BRACES, (whole, name, singular, plural) => {
    const value = values[name] ?? whole;
    const written = typeof value === "number" ? value.toLocaleString("en") : String(value);
    if (plural === undefined) return written;
    return written === "1" ? singular : plural;
  });
}
