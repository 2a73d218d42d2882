// Shows what the session's browser shows, as it comes over the view's WebSocket; an interactive view sends input back.
// What the page says of itself (title, address, the text of a dialog) is a stranger's text: it is never made HTML.
"use strict";
const $ = (id) => document.getElementById(id);
const canvas = $("picture");
const FARTHEST_TRY_MS = 10000, TRIES = 8;
let socket = null, interactive = false, over = false, tries = 0, drawing = Promise.resolve();

function status(text, kind) {
  $("status").textContent = text;
  $("status").className = kind;
}
function send(message) {
  if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}
function act(message) {
  if (interactive) send(message);
}

function connect() {
  const address = new URL(document.body.dataset.socket, location.href);
  address.protocol = location.protocol === "https:" ? "wss:" : "ws:";
  const mine = (socket = new WebSocket(address));
  mine.binaryType = "arraybuffer";
  mine.onmessage = ({ data }) => {
    if (typeof data === "string") hear(JSON.parse(data));
    else drawing = drawing.then(() => draw(data)).finally(() => send({ type: "taken" }));
  };
  mine.onclose = () => {
    if (over) return;
    if (++tries > TRIES) return status("The session cannot be reached. It may have ended.", "bad");
    status("Reconnecting…", "wait");
    setTimeout(connect, Math.min(500 * 2 ** tries, FARTHEST_TRY_MS));
  };
}

async function draw(data) {
  try {
    const picture = await createImageBitmap(new Blob([data], { type: "image/jpeg" }));
    if (canvas.width !== picture.width || canvas.height !== picture.height) {
      canvas.width = picture.width;
      canvas.height = picture.height;
    }
    canvas.getContext("2d").drawImage(picture, 0, 0);
    picture.close();
  } catch {
    // One picture that cannot be read is no reason to stop: the next one comes.
  }
}

function hear(news) {
  tries = 0;
  if (news.type === "hello") {
    interactive = news.interactive === true;
    status(interactive ? "Connected. You can act in the page." : "Connected. You can watch.", "good");
    for (const id of ["controls", "typing", "keys"]) $(id).hidden = !interactive;
    canvas.classList.toggle("live", interactive);
    if (interactive) canvas.tabIndex = 0;
    if (interactive) canvas.setAttribute("role", "application");
  } else if (news.type === "page") {
    const title = news.tab ? news.title || news.url : "No page is open";
    $("title").textContent = title;
    $("shown").textContent = interactive || !news.tab ? "" : news.url;
    document.title = `${title} – live view`;
    canvas.setAttribute("aria-label", `The page: ${title}`);
    if (document.activeElement !== $("url")) $("url").value = news.url === "about:blank" ? "" : news.url;
    tabs(news.tab, news.tabs);
  } else if (news.type === "dialog") {
    dialog(news);
  } else if (news.type === "ended") {
    over = true;
    interactive = false;
    for (const id of ["controls", "typing", "keys", "dialog", "tabs", "where"]) $(id).hidden = true;
    canvas.className = "past";
    canvas.removeAttribute("tabindex");
    canvas.setAttribute("aria-label", "The last picture of the page");
    status("The session has ended.", "bad");
  }
}

function tabs(current, count) {
  const parts = [];
  for (let number = 1; interactive && number <= count; number++) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = `Tab ${number}`;
    if (number === current) button.setAttribute("aria-current", "true");
    button.onclick = () => act({ type: "tab", number });
    parts.push(button);
  }
  $("tabs").hidden = count < 2;
  $("tabs").replaceChildren(...(interactive ? parts : [`Tab ${current} of ${count}`]));
}

function dialog(news) {
  $("dialog").hidden = !news.open;
  if (!news.open) return;
  $("asks").textContent = news.kind === "beforeunload" ? "Leave the page?" : "The page says:";
  $("says").textContent = news.text;
  $("reply").hidden = news.kind !== "prompt" || !interactive;
  $("reply").value = news.default;
  $("answers").hidden = !interactive;
  $("dismiss").hidden = news.kind === "alert";
  if (interactive) (news.kind === "prompt" ? $("reply") : $("answers").firstElementChild).focus();
}

$("dialog").onsubmit = (event) => {
  event.preventDefault();
  act({ type: "answer", accept: true, text: $("reply").value });
  canvas.focus();
};
$("dismiss").onclick = () => act({ type: "answer", accept: false });
$("address").onsubmit = (event) => {
  event.preventDefault();
  const typed = $("url").value.trim();
  if (typed) act({ type: "navigate", url: /^[a-z][a-z0-9+.-]*:\/\//i.test(typed) ? typed : `https://${typed}` });
  canvas.focus();
};
for (const button of document.querySelectorAll("[data-go]")) {
  button.onclick = () => act({ type: "go", where: button.dataset.go });
}
$("typing").onsubmit = (event) => {
  event.preventDefault();
  if ($("text").value) act({ type: "text", text: $("text").value });
  $("text").value = "";
};

// The pointer: where it is on the picture, whatever size the picture is shown in.
const BUTTONS = ["left", "middle", "right", "back", "forward"];
const held = (event) => (event.altKey ? 1 : 0) + (event.ctrlKey ? 2 : 0) + (event.metaKey ? 4 : 0) + (event.shiftKey ? 8 : 0);
function at(event) {
  const box = canvas.getBoundingClientRect();
  const edge = canvas.clientLeft;
  const across = (event.clientX - box.left - edge) / canvas.clientWidth, down = (event.clientY - box.top - edge) / canvas.clientHeight;
  return {
    x: Math.min(Math.max(across, 0), 1) * canvas.width,
    y: Math.min(Math.max(down, 0), 1) * canvas.height,
    modifiers: held(event),
  };
}
function pointer(what, event, button, clickCount) {
  act({ type: "mouse", what, ...at(event), button, buttons: event.buttons & 31, clickCount });
}
let clicks = 0, clickedAt = 0, moved = null, touch = null;
canvas.onpointerdown = (event) => {
  if (!interactive) return;
  canvas.focus();
  canvas.setPointerCapture(event.pointerId);
  // A finger that moves scrolls, and one that does not is a click.
  if (event.pointerType === "touch") return void (touch = { x: event.clientX, y: event.clientY, moved: false });
  clicks = event.timeStamp - clickedAt < 500 ? Math.min(clicks + 1, 3) : 1;
  clickedAt = event.timeStamp;
  pointer("down", event, BUTTONS[event.button] ?? "none", clicks);
};
canvas.onpointerup = (event) => {
  if (touch) {
    const tapped = !touch.moved;
    touch = null;
    if (!tapped) return;
    pointer("down", event, "left", 1);
    return pointer("up", event, "left", 1);
  }
  pointer("up", event, BUTTONS[event.button] ?? "none", clicks);
};
canvas.onpointercancel = () => (touch = null);
canvas.onpointermove = (event) => {
  if (!interactive) return;
  if (touch) {
    const dx = touch.x - event.clientX, dy = touch.y - event.clientY;
    if (!touch.moved && Math.hypot(dx, dy) < 8) return;
    touch = { x: event.clientX, y: event.clientY, moved: true };
    const zoom = canvas.width / canvas.clientWidth;
    return act({ type: "wheel", ...at(event), dx: dx * zoom, dy: dy * zoom });
  }
  // One move a frame: a mouse tells of a thousand a second.
  if (!moved) requestAnimationFrame(() => ((event = moved), (moved = null), pointer("move", event, event.buttons & 1 ? "left" : "none", 0)));
  moved = event;
};
canvas.addEventListener("wheel", (event) => {
  if (!interactive) return;
  event.preventDefault();
  const line = event.deltaMode === 1 ? 20 : event.deltaMode === 2 ? canvas.clientHeight : 1;
  const zoom = (canvas.width / canvas.clientWidth) * line;
  const near = (delta) => Math.min(Math.max(delta * zoom, -10000), 10000);
  act({ type: "wheel", ...at(event), dx: near(event.deltaX), dy: near(event.deltaY) });
}, { passive: false });
canvas.oncontextmenu = (event) => { if (interactive) event.preventDefault(); };

// Keys, while the picture has the focus. Pasting goes its own way, with the text.
function key(what, event) {
  if (!interactive || event.isComposing) return;
  if (event.ctrlKey && event.altKey && event.code === "KeyQ") return canvas.blur();
  if ((event.ctrlKey || event.metaKey) && event.code === "KeyV") return;
  event.preventDefault();
  const writes = [...event.key].length === 1 && !event.ctrlKey && !event.metaKey ? event.key : event.key === "Enter" ? "\r" : "";
  act({ type: "key", what, key: event.key, code: event.code, text: what === "down" ? writes : "", number: event.keyCode & 255, modifiers: held(event), repeat: event.repeat });
}
canvas.onkeydown = (event) => key("down", event);
canvas.onkeyup = (event) => key("up", event);
document.addEventListener("paste", (event) => {
  if (!interactive || document.activeElement !== canvas) return;
  const text = event.clipboardData.getData("text/plain").slice(0, 16000);
  if (text) act({ type: "text", text });
  event.preventDefault();
});

setInterval(() => send({ type: "ping" }), 20000);
connect();
