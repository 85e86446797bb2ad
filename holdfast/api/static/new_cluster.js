// Page that creates a cluster: a form that fills in the request, which can be edited as JSON, too.

import { changeCluster } from "./api.js";
import { clusterLink } from "./clusters.js";
import { h, icon, notice } from "./dom.js";

/** Fields of the form: where each is in the request, and what it is. */
const FIELDS = [
  { id: "name", word: "Cluster name", path: ["ClusterName"], value: "ml-cluster" },
  { id: "group", word: "Instance group", path: ["InstanceGroups", 0, "InstanceGroupName"], value: "worker-group-1" },
  { id: "type", word: "Instance type", path: ["InstanceGroups", 0, "InstanceType"], value: "ml.p5.48xlarge" },
  { id: "count", word: "Number of nodes", path: ["InstanceGroups", 0, "InstanceCount"], value: 1, isNumber: true },
  { id: "role", word: "Execution role", path: ["InstanceGroups", 0, "ExecutionRole"], value: "arn:aws:iam::123456789012:role/ClusterRole" },
  { id: "scripts", word: "Lifecycle scripts (optional)", path: ["InstanceGroups", 0, "LifeCycleConfig", "SourceS3Uri"], value: "" },
  { id: "script", word: "Script to run on each new node (optional)", path: ["InstanceGroups", 0, "LifeCycleConfig", "OnCreate"], value: "" },
];
const RECOVERY = ["NodeRecovery"];

export const title = "Create a cluster";

function valueAt(request, path) {
  return path.reduce((found, key) => found?.[key], request);
}

/** A request with a value at a path; an empty text removes it, and an object that is empty then. */
function withValue(request, [key, ...rest], value) {
  const copy = Array.isArray(request) ? [...request] : { ...request };
  const next = rest.length ? withValue(copy[key] ?? (typeof rest[0] === "number" ? [] : {}), rest, value) : value;
  const isEmpty = next === "" || (typeof next === "object" && !Object.keys(next).length);
  if (isEmpty && !Array.isArray(copy)) delete copy[key];
  else copy[key] = next;
  return copy;
}

export function open(container) {
  const inputs = FIELDS.map((one) => h("input", { type: one.isNumber ? "number" : "text", id: one.id, min: one.isNumber ? 0 : null, value: one.value, autocomplete: "off", oninput: fromForm }));
  const repairs = h("input", { type: "checkbox", id: "repairs", checked: true, onchange: fromForm });
  const text = h("textarea", { id: "request", rows: 20, spellcheck: "false", oninput: fromText });
  const wrong = h("p.wrong", { role: "alert", hidden: true });
  const go = h("button.main", { type: "submit" }, "Create cluster");
  const form = h(
    "form.fields",
    {},
    h("div", {}, FIELDS.map((one, place) => [h("label", { for: one.id }, one.word), inputs[place]]), h("label.choice", { for: "repairs" }, repairs, "Repair faulty nodes automatically")),
    h("div", {}, h("label", { for: "request" }, "Request of CreateCluster (JSON)"), text),
    wrong,
    h("div.buttons", {}, h("a.button.quiet", { href: "#/clusters" }, "Cancel"), go),
  );
  form.noValidate = true; // the server states what is wrong, of the form and of the JSON alike
  form.addEventListener("submit", submit);
  container.append(h("header.head", {}, h("a.up", { href: "#/clusters" }, icon("back"), "Clusters"), h("h1", { tabindex: "-1" }, "Create a cluster"), h("p.about", {}, "Fill in the form, or paste a request. The form shows its first instance group.")), h("section.card", {}, form));
  fromForm();

  function parsed() {
    const request = JSON.parse(text.value || "{}");
    if (request === null || typeof request !== "object" || Array.isArray(request)) throw new Error("expected a JSON object");
    return request;
  }

  function fromForm() {
    let request = {};
    try {
      request = parsed();
    } catch {
      // the form replaces a text that is not JSON
    }
    FIELDS.forEach((one, place) => {
      const value = inputs[place].value.trim();
      request = withValue(request, one.path, one.isNumber && value ? Number(value) : value);
    });
    request = withValue(request, RECOVERY, repairs.checked ? "Automatic" : "None");
    text.value = JSON.stringify(request, null, 2);
  }

  function fromText() {
    try {
      const request = parsed();
      FIELDS.forEach((one, place) => (inputs[place].value = valueAt(request, one.path) ?? ""));
      repairs.checked = valueAt(request, RECOVERY) !== "None";
      wrong.hidden = true;
    } catch {
      // it is being typed
    }
  }

  async function submit(event) {
    event.preventDefault();
    go.disabled = true;
    wrong.hidden = true;
    try {
      const request = parsed();
      await changeCluster("CreateCluster", request);
      notice(`${request.ClusterName} is being created`);
      location.hash = clusterLink(request.ClusterName);
    } catch (error) {
      wrong.textContent = error instanceof SyntaxError ? `The request is not JSON: ${error.message}` : error.message;
      wrong.hidden = false;
    }
    go.disabled = false;
  }
  return null;
}
