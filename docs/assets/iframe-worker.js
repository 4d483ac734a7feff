// A page that is opened from a disk (file://) may start no worker, and the search of the site runs in one. Here the
// worker's script runs in a hidden frame. Messages arrive later, as between threads: the sender is not done yet.
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.waiting = [];
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      this.frame.srcdoc = "<!doctype html>";
      this.frame.onload = () => {
        const inner = this.frame.contentWindow;
        inner.postMessage = (data) => setTimeout(() => this.onmessage?.({ data }));
        const script = inner.document.createElement("script");
        script.src = new URL(url, location);
        script.onload = () => {
          this.inner = inner;
          this.waiting.splice(0).forEach((data) => this.postMessage(data));
        };
        script.onerror = () => this.onmessageerror?.();
        inner.document.head.append(script);
      };
      document.documentElement.append(this.frame);
    }
    postMessage(data) {
      if (this.inner) setTimeout(() => this.inner.onmessage({ data }));
      else this.waiting.push(data);
    }
    terminate() {
      this.frame.remove();
    }
  };
}
