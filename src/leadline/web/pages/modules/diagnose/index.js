// The view that diagnoses a model: a form, how far it is, and what was found. The address fills the
// form and never starts anything; a diagnosis that runs goes on while another view is open.
import { element } from "../elements.js";
import { diagnoseForm } from "./form.js";
import { progressPart } from "./progress.js";
import { resultPart } from "./result.js";

const KEY = "leadline-diagnosis";

function keep(value) {
  try {
    if (value) sessionStorage.setItem(KEY, JSON.stringify(value));
    else sessionStorage.removeItem(KEY);
  } catch { /* no storage: kept until the view is left */ }
}

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) || "null");
  } catch {
    return null;
  }
}

export function mount(holder, { api, t, address, onAddress }) {
  let abort = null;
  let job = null;
  const form = diagnoseForm({ t, onAsk: ask, onStop: stop });
  const progress = progressPart(t);
  const result = resultPart(t);
  holder.append(element("div", { class: "diagnose" },
    element("header", {}, element("h1", { text: t("diagnose.title") }), element("p", { class: "soft", text: t("diagnose.about") })),
    form.root, progress.root, result.root));

  function requestOfAddress() {
    const query = address.read();
    return { model: query.get("model") || "", kind: query.get("kind") || "", text: query.get("text") || "", apply: query.get("apply") === "1" };
  }

  async function ask(request) {
    address.replace({ model: request.model, kind: request.kind, ...(request.text ? { text: request.text } : {}), ...(request.apply ? { apply: "1" } : {}) });
    form.busy(true);
    result.clear();
    progress.start();
    try {
      ({ job } = await api.diagnose(request));
    } catch (error) {
      job = null;
      form.busy(false);
      progress.hide();
      form.fail(error.message);
      return;
    }
    keep({ job, request });
    follow();
  }

  async function follow() {
    abort?.abort();
    abort = new AbortController();
    const { signal } = abort;
    form.busy(true);
    try {
      await api.jobEvents(job, hear, { signal, onOpen: () => progress.back(), onLost: () => progress.lost() });
    } catch (error) {
      if (signal.aborted) return;
      finish();
      result.fail(error.message);
    }
  }

  function hear(event) {
    if (event.event === "progress") progress.update(event);
    else if (event.event === "verdict") result.verdict(event);
    else if (event.event === "remedy") result.remedy(event);
    else if (event.event === "again") result.again(event);
    else if (event.event === "error") result.fail(event.reason);
    else if (event.event === "end") {
      if (event.reason === "stopped") result.stopped();
      finish();
      return true;
    }
    return false;
  }

  function finish() {
    form.busy(false);
    progress.hide();
  }

  async function stop() {
    progress.stopping();
    try {
      if (job) await api.stopJob(job);
    } catch (error) {
      result.fail(error.message);
    }
  }

  // A diagnosis of this tab that is still known to the server is shown again.
  async function takeUp() {
    const before = kept();
    const wish = requestOfAddress();
    if (before && (!wish.model || (wish.model === before.request.model && (!wish.kind || wish.kind === before.request.kind)))) {
      const jobs = await api.jobs().catch(() => []);
      if (job !== null || !holder.isConnected) return;
      if (jobs.some((one) => one.id === before.job)) {
        form.fill(before.request);
        job = before.job;
        progress.start();
        follow();
      } else keep(null);
    }
  }

  form.fill(requestOfAddress());
  takeUp();
  const forget = onAddress(() => form.fill(requestOfAddress()));
  return () => {
    forget();
    abort?.abort();
  };
}
