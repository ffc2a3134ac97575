// Server-sent events out of chunks of text. EventSource cannot show a token, so the stream is read by fetch.

/** Longest line that is kept: more is no stream of ours. */
const LINE_MAX = 16 * 1024 * 1024;

/** A reader: give it chunks, it gives back the events that they complete. */
export function reader() {
  let line = "";
  let event = { name: "", data: "" };
  const endLine = (text, events) => {
    if (text === "") {
      if (event.data !== "") events.push(event);
      event = { name: "", data: "" };
      return;
    }
    const colon = text.indexOf(":");
    const field = colon < 0 ? text : text.slice(0, colon);
    const value = colon < 0 ? "" : text.slice(colon + 1).replace(/^ /, "");
    if (field === "event") event.name = value;
    if (field === "data") event.data += value;
  };
  return (chunk) => {
    const events = [];
    const parts = (line + chunk).split("\n");
    line = parts.pop();
    if (line.length > LINE_MAX) throw new Error("a line without an end");
    for (const part of parts) endLine(part.replace(/\r$/, ""), events);
    return events;
  };
}
