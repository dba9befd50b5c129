/** Joins the page's controls to the dialogue and the player. */
import { Access } from "./access.js";
import { Captions } from "./captions.js";
import { Conversation } from "./conversation.js";
import { DialogueView, dialogueRows } from "./dialogue.js";
import { Measures } from "./measures.js";
import { Player } from "./player.js";
import { Wave } from "./wave.js";

const byId = (id) => document.getElementById(id);
const server = new URL(".", document.baseURI);

const access = new Access(server);
const measures = new Measures(byId("measures"));
const captions = new Captions(byId("captions"));
const dialogue = new DialogueView(byId("dialogue"));
const player = new Player({
  status: (status) => {
    measures.buffer(status);
    conversation.playerStatus(status);
  },
  event: (event) => conversation.playerEvent(event),
  silenced: render,
});
const wave = new Wave(byId("wave"), player);
const conversation = new Conversation(server, access, player, {
  changed: render,
  connection: showConnection,
  notice: showNotice,
  firstAudio: (ms) => measures.firstAudio(ms),
  silence: (ms) => measures.silence(ms),
  roundTrip: (ms) => measures.roundTrip(ms),
  done: (message) => measures.server(message),
});

function render() {
  const speaking = conversation.isSpeaking;
  dialogue.render(dialogueRows(conversation.items, conversation.responses));
  const [current] = conversation.responses;
  if (current) captions.update(current.id, current.text, current.isWhole);
  byId("empty").hidden = conversation.items.length + conversation.responses.length > 0;
  byId("stop").disabled = !speaking;
  byId("speak").disabled = !conversation.isOpen;
  byId("add").disabled = !conversation.isOpen;
  byId("unlock").hidden = !(player.isSilenced && speaking);
  if (speaking) wave.start();
  else wave.stop();
}

function showConnection({ state, reason, retryInMs, model, voice }) {
  const texts = {
    connecting: "Connecting…",
    open: `Connected to ${model}`,
    lost: `Trying again in ${retryInMs / 1000} s`,
    closed: "Disconnected",
    locked: "Locked",
  };
  byId("connection").textContent = texts[state];
  byId("connection").dataset.state = state;
  byId("reconnect").hidden = state !== "lost" && state !== "closed";
  byId("access").hidden = state !== "locked";
  if (state === "locked") byId("credential").focus();
  if (reason && state !== "locked") showNotice(reason, true);
  else hideNotice();
  if (state === "open") showVoices(voice);
  render();
}

function showNotice(text, isError) {
  byId(isError ? "problem" : "hint").textContent = text;
  byId("notices").hidden = false;
}

function hideNotice() {
  byId("problem").textContent = "";
  byId("hint").textContent = "";
  byId("notices").hidden = true;
}

async function showVoices(current) {
  const select = byId("voice");
  try {
    const answer = await access.fetch("v1/voices");
    const { data } = await answer.json();
    select.replaceChildren(...data.map(({ name }) => new Option(name, name)));
    select.value = current;
    select.disabled = data.length === 0;
  } catch {
    showNotice("The voices could not be listed; replies use the server's own choice.", true);
  }
}

async function unlock() {
  const field = byId("credential");
  if (!field.value.trim()) return;
  const complaint = await access
    .enter(field.value.trim())
    .catch(() => "The server does not answer.");
  field.value = "";
  byId("access-problem").textContent = complaint;
  if (complaint) return;
  conversation.connect();
  byId("reply").focus(); // the form is about to go
}

function speak() {
  const text = byId("reply").value;
  if (!text.trim() || !conversation.isOpen) return;
  hideNotice();
  if (!player.unlock()) {
    showNotice("This browser plays sound only on pages opened over https or on localhost.", true);
    return;
  }
  measures.begin();
  addUser();
  byId("reply").value = "";
  conversation.say(text, byId("paced").checked ? Number(byId("rate").value) : 0);
}

function addUser() {
  const field = byId("user");
  if (field.value.trim() && conversation.isOpen) {
    conversation.addUser(field.value);
    field.value = "";
  }
}

function showRate() {
  byId("rate-value").textContent = `${byId("rate").value} words a second`;
  byId("rate").disabled = !byId("paced").checked;
}

byId("access").addEventListener("submit", (event) => {
  event.preventDefault();
  unlock();
});
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  speak();
});
byId("reply").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  speak();
});
byId("user").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.isComposing) return;
  event.preventDefault();
  addUser();
});
byId("add").addEventListener("click", addUser);
byId("stop").addEventListener("click", () => conversation.stop());
byId("unlock").addEventListener("click", () => player.unlock());
byId("reconnect").addEventListener("click", () => {
  conversation.connect();
  byId("reply").focus(); // the button is about to go
});
byId("dismiss").addEventListener("click", hideNotice);
byId("voice").addEventListener("change", ({ target }) => conversation.setVoice(target.value));
byId("delivery").addEventListener("input", showRate);
document.addEventListener("keydown", ({ key }) => {
  if (key === "Escape") conversation.stop();
});
for (const type of ["pointerup", "keydown"]) {
  document.addEventListener(type, () => player.unlock(), { once: true });
}
for (const example of document.querySelectorAll("[data-reply]")) {
  example.addEventListener("click", () => {
    byId("user").value = example.dataset.user;
    byId("reply").value = example.dataset.reply;
    byId("reply").focus();
  });
}

showRate();
conversation.connect();
