"use strict";
// Replaces the parts of the page that the server sends, and keeps focus and scroll positions.
const lost = document.getElementById("lost");

function replace(id, markup) {
  const part = document.getElementById(id);
  if (!part) return;
  const focused = [...part.querySelectorAll("[tabindex]")].indexOf(document.activeElement);
  const scrolled = [...part.querySelectorAll(".wide")].map((each) => each.scrollLeft);
  part.innerHTML = markup;
  part.querySelectorAll(".wide").forEach((each, at) => { each.scrollLeft = scrolled[at] || 0; });
  if (focused >= 0) part.querySelectorAll("[tabindex]")[focused]?.focus({ preventScroll: true });
}

function listen() {
  const events = new EventSource("events");
  events.onopen = () => { lost.hidden = true; };
  events.onerror = () => {
    lost.hidden = false;
    if (events.readyState === EventSource.CLOSED) setTimeout(listen, 3000);
  };
  events.onmessage = (event) => {
    const { title, parts } = JSON.parse(event.data);
    document.title = title;
    for (const [id, markup] of Object.entries(parts)) replace(id, markup);
  };
}
listen();
