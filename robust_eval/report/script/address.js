// The state of the page (opened question, search, filters, sorting) in its address, so that it can be shared.
const SAID = ["q", "search", "status", "type", "category", "broken", "only", "sort"];

function writeAddress() {
  const params = new URLSearchParams();
  const last = [...state.opened].at(-1);
  if (last !== undefined) params.set("q", index.ids[last]);
  if (state.search) params.set("search", state.search);
  for (const [name, value] of Object.entries(state.filters)) if (value) params.set(name, value);
  if (state.broken !== null) params.set("broken", state.broken);
  if (state.kinds.size) params.set("only", [...state.kinds].join(" "));
  if (state.sort && (state.sort !== first || state.descending)) params.set("sort", `${state.descending ? "-" : ""}${state.sort.label}`);
  if (document.body.classList.contains("alone")) params.set("alone", "1");
  const address = params.size ? `#${params}` : "";
  if (!address && !SAID.some((name) => location.hash.startsWith(`#${name}=`))) return;
  if (location.protocol === "about:") return; // a page embedded with srcdoc has no address
  history.replaceState(null, "", address || location.pathname + location.search);
}

/** Restore the state of the page from its address. */
function readAddress() {
  const params = new URLSearchParams(location.hash.slice(1));
  state.search = params.get("search") ?? state.search;
  for (const name of ["status", "type", "category"]) if (words[name]?.includes(params.get(name))) state.filters[name] = params.get(name);
  if (breaking?.levels.includes(Number(params.get("broken")))) state.broken = Number(params.get("broken"));
  for (const name of params.get("only")?.split(" ") ?? []) if (holding[name]) state.kinds.add(name);
  showChosen();
  const sort = params.get("sort");
  const column = columns.find((each) => each.label === sort?.replace(/^-/, ""));
  if (column) Object.assign(state, { sort: column, descending: sort.startsWith("-") });
  document.body.classList.toggle("alone", params.has("alone"));
  const row = params.has("q") ? index.ids.indexOf(params.get("q")) : -1;
  if (row >= 0) open(row);
  else drawRows();
}
