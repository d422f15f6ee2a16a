// The JSON API of the Hub, with the session's cookie.

export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.field = error.field;
  }
}

/** Returns the value of a cookie that scripts may read. */
export function cookie(name) {
  const pair = document.cookie.split("; ").find((text) => text.startsWith(`${name}=`));
  return pair ? decodeURIComponent(pair.slice(name.length + 1)) : "";
}

/** Calls the API and returns the JSON of its answer. Throws ApiError. */
export async function api(method, path, body) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-XSRFToken"] = xsrf();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const text = await answer.text();
  const content = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new ApiError(answer.status, content?.error ?? { message: answer.statusText });
  return content;
}

/** Returns the token of the page's forms. */
export function xsrf() {
  return document.querySelector('input[name="_xsrf"]')?.value ?? "";
}
