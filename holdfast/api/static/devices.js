// Devices of a node, as its agent reads them.

import { h } from "./dom.js";
import { count, since } from "./format.js";
import { badge } from "./appearance.js";
import { plainTable } from "./table.js";

/** One device, several, and the name of their table. */
const KINDS = {
  gpu: ["GPU", "GPUs", "GPUs"],
  nvlink: ["GPU", "GPUs with NVLink", "NVLink errors"],
  neuron: ["Neuron device", "Neuron devices", "Neuron devices"],
  network: ["network port", "network ports", "Network ports"],
  memory: ["memory controller", "memory controllers", "Memory controllers"],
};
/** Words for values, in the order of the columns; other values are counters of errors. */
const WORDS = {
  state: "State",
  rate: "Rate",
  temperature: "Temperature",
  memory_temperature: "Memory temperature",
  power: "Power",
  links: "Links",
  cores: "Cores",
  ecc_corrected: "ECC corrected",
  ecc_uncorrected: "ECC uncorrected",
  ecc_uncorrected_lifetime: "Uncorrected, lifetime",
  remapped_rows: "Remapped rows",
  replay_errors: "Replay errors",
  recovery_errors: "Recovery errors",
  crc_errors: "CRC errors",
  fabric: "NVLink fabric",
  fabric_status: "Fabric status",
  recovery_action: "Recovery action",
  vbios: "VBIOS",
  firmware: "Firmware",
  serial: "Serial",
};
const VERSIONS = { driver: "driver", cuda: "CUDA" };
/** Values of which any other than 0 is worth a look. */
const BAD = new Set(["ecc_uncorrected", "recovery_errors", "crc_errors"]);
const NUMBERS = new Set(["temperature", "memory_temperature", "power", "links", "cores"]);
/** Texts that are equal for all devices are shown once, above the table. */
const SHARED = new Set(["rate", "vbios", "firmware", "fabric", "recovery_action"]);

/** A card with all devices of a node. */
export function devices(node) {
  return h(
    "section.card.devices",
    {},
    h("h2", {}, "Devices"),
    node.hardware.length ? node.hardware.map(group) : h("p.empty", {}, node.no_hardware),
  );
}

function group(one) {
  const [single, several, caption] = KINDS[one.kind];
  const names = Object.keys(WORDS).filter((name) => one.devices.some((device) => name in device.values));
  const shared = names.filter((name) => SHARED.has(name) && isShared(one.devices, (device) => device.values[name]));
  const columns = names.filter((name) => !shared.includes(name));
  const models = isShared(one.devices, (device) => device.model) ? one.devices[0].model : "";
  const hasModels = !models && one.devices.some((device) => device.model);
  const hasErrors = ["network", "neuron"].includes(one.kind);
  const about = [
    ...Object.entries(one.versions).map(([name, version]) => `${VERSIONS[name] ?? name} ${version}`),
    ...shared.map((name) => `${WORDS[name]}: ${one.devices[0].values[name]}`),
  ];
  const rows = one.devices.map((device) => [
    device.name,
    ...(hasModels ? [device.model || "–"] : []),
    ...columns.map((name) => value(name, device.values[name])),
    ...(hasErrors ? [errors(device)] : []),
  ]);
  const titles = [single[0].toUpperCase() + single.slice(1), ...(hasModels ? ["Model"] : []), ...columns.map((name) => WORDS[name]), ...(hasErrors ? ["Errors"] : [])];
  const kinds = ["", ...(hasModels ? [""] : []), ...columns.map((name) => (NUMBERS.has(name) || /ecc|errors|rows/.test(name) ? "number" : "")), ""];
  return [
    h("h3", {}, `${count(one.devices.length, single, several)}${models ? `, ${models}` : ""}`),
    h("p.about", {}, about.map((text) => `${text}, `), "read ", since(one.read_at, " ago")),
    one.error && h("p.wrong", {}, `Later readings failed: ${one.error}`),
    plainTable(caption, titles, rows, kinds),
    one.left_out > 0 && h("p.shown", {}, `and ${count(one.left_out, "more device")}`),
  ];
}

function isShared(list, value) {
  const first = value(list[0]);
  return Boolean(first) && list.every((one) => value(one) === first);
}

function value(name, text) {
  if (text === undefined) return "–";
  if (name === "state" && text !== "ACTIVE") return badge("warning", text);
  return BAD.has(name) && text !== "0" ? badge("faulty", text) : text.replace(/ C$/, " °C");
}

/** Counters that are not 0. */
function errors(device) {
  const found = Object.entries(device.values).filter(([name]) => !(name in WORDS));
  if (!found.length) return h("span.about", {}, "none");
  return badge("warning", found.map(([name, amount]) => `${name.replaceAll("_", " ")} ${amount}`).join(", "));
}
