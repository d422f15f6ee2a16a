// The JSON API of the Hub, with the session's cookie.

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.field = error.field;
  }
}

/** The value of a cookie that scripts may read. */
export function cookie(name) {
  const found = document.cookie.split("; ").find((one) => one.startsWith(`${name}=`));
  return found ? decodeURIComponent(found.slice(name.length + 1)) : "";
}

/** Asks the API; the answer's JSON. Throws ApiError. */
export async function api(method, path, body) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-XSRFToken"] = xsrf();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  const said = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new ApiError(answer.status, said?.error ?? { message: answer.statusText });
  return said;
}

/** The token of the page's forms. */
export function xsrf() {
  return document.querySelector('input[name="_xsrf"]')?.value ?? "";
}
