// Asks for this same page every two seconds while somebody looks at it, and puts its new middle in place.
"use strict";
const EVERY_MS = 2000;
async function renew() {
  if (document.hidden || !getSelection().isCollapsed) return;
  let text;
  try {
    const reply = await fetch(location.href, { cache: "no-store" });
    if (reply.status === 401) return location.assign("/");
    if (!reply.ok) return;
    text = await reply.text();
  } catch {
    return; // the service is away; the next try may find it again
  }
  const fresh = new DOMParser().parseFromString(text, "text/html").getElementById("main");
  const main = document.getElementById("main");
  if (!fresh || !main) return location.assign("/");
  if (fresh.innerHTML === main.innerHTML) return;
  // Screen readers say the news, and not every number that changes.
  if (fresh.dataset.news !== main.dataset.news) document.getElementById("news").textContent = fresh.dataset.news;
  const focused = main.contains(document.activeElement) ? document.activeElement.id : "";
  const scrolled = [...main.querySelectorAll("pre")].map((text) => [text.id, text.scrollTop]);
  main.replaceWith(fresh);
  for (const [id, top] of scrolled) document.getElementById(id)?.scrollTo(0, top);
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
}
(async () => {
  for (;;) {
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    await renew();
  }
})();
