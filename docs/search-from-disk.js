// Browsers start no worker from file://. A page that is opened from disk runs the worker of the search in a hidden
// frame instead, which has its own global object, as a worker has.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const address = new URL(url, document.baseURI).href;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.scope = frame.contentWindow;
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      const addScript = (source) =>
        new Promise((loaded, failed) => {
          const script = frame.contentDocument.createElement("script");
          Object.assign(script, { src: new URL(source, address).href, onload: loaded, onerror: failed });
          frame.contentDocument.body.append(script);
        });
      this.scope.importScripts = (...sources) => Promise.all(sources.map(addScript));
      this.ready = addScript(address);
    }

    postMessage(data) {
      this.ready.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
