/** The page's credential: a client token. A key is traded for one and stays in memory alone. */

const TOKEN_PREFIX = "ct1.";
const FRAGMENT = "#token=";
const RENEW_BEFORE_S = 60;

export class Access {
  #base;
  #key = "";
  #token = "";
  #expiresAt = 0; // Unix seconds

  /** `base` is the server's URL. A token after `#token=` is taken and leaves the address bar. */
  constructor(base) {
    this.#base = base;
    if (location.hash.startsWith(FRAGMENT)) {
      this.#token = decodeURIComponent(location.hash.slice(FRAGMENT.length));
      history.replaceState(history.state, "", location.pathname + location.search);
    }
  }

  /** What a WebSocket offers, beside its own subprotocol, to say who asks. */
  get subprotocols() {
    return this.#token ? [`bearer.${this.#token}`] : [];
  }

  /** Fetch a path of the server with the credential. */
  fetch(path) {
    return fetch(new URL(path, this.#base), { headers: bearer(this.#token) });
  }

  /** Whether the server wants a credential that this page does not have. */
  async isMissing() {
    return (await this.fetch("v1/models")).status === 401;
  }

  /** Take what a person typed, a key or a token. Returns what is wrong with it, or "". */
  async enter(credential) {
    if (credential.startsWith(TOKEN_PREFIX)) {
      this.#key = "";
      this.#token = credential;
      return (await this.isMissing()) ? "The server does not accept this token." : "";
    }
    this.#key = credential;
    return this.#trade();
  }

  /** Get a new token while the key is here and the old one is about to end. */
  async renew() {
    if (this.#key && Date.now() / 1000 > this.#expiresAt - RENEW_BEFORE_S) await this.#trade();
  }

  async #trade() {
    const headers = bearer(this.#key);
    const url = new URL("v1/client_tokens", this.#base);
    const answer = await fetch(url, { method: "POST", headers, body: '{"ttl_s": 3600}' });
    const { token, expires_at, error } = await answer.json();
    if (!answer.ok) {
      this.#key = "";
      return answer.status === 401 ? "The server does not know this key." : error.message;
    }
    this.#token = token;
    this.#expiresAt = expires_at;
    return "";
  }
}

function bearer(credential) {
  return credential ? { Authorization: `Bearer ${credential}` } : {};
}
