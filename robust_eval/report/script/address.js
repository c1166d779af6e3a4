// The address says what is opened, searched, filtered and sorted, so that it can be shared.
const SAID = ["q", "search", "status", "type", "category", "broken", "only", "sort"];

function writeAddress() {
  const said = new URLSearchParams();
  const last = [...state.opened].at(-1);
  if (last !== undefined) said.set("q", index.ids[last]);
  if (state.search) said.set("search", state.search);
  for (const [name, value] of Object.entries(state.filters)) if (value) said.set(name, value);
  if (state.broken !== null) said.set("broken", state.broken);
  if (state.kinds.size) said.set("only", [...state.kinds].join(" "));
  if (state.sort && (state.sort !== first || state.descending)) said.set("sort", `${state.descending ? "-" : ""}${state.sort.label}`);
  if (document.body.classList.contains("alone")) said.set("alone", "1");
  const address = said.size ? `#${said}` : "";
  if (!address && !SAID.some((name) => location.hash.startsWith(`#${name}=`))) return;
  if (location.protocol === "about:") return; // inside of another page there is no address
  history.replaceState(null, "", address || location.pathname + location.search);
}

/** Do what the address asks for. */
function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  state.search = said.get("search") ?? state.search;
  for (const name of ["status", "type", "category"]) if (words[name]?.includes(said.get(name))) state.filters[name] = said.get(name);
  if (breaking?.levels.includes(Number(said.get("broken")))) state.broken = Number(said.get("broken"));
  for (const name of said.get("only")?.split(" ") ?? []) if (holding[name]) state.kinds.add(name);
  showChosen();
  const sort = said.get("sort");
  const column = columns.find((each) => each.label === sort?.replace(/^-/, ""));
  if (column) Object.assign(state, { sort: column, descending: sort.startsWith("-") });
  document.body.classList.toggle("alone", said.has("alone"));
  const row = said.has("q") ? index.ids.indexOf(said.get("q")) : -1;
  if (row >= 0) open(row);
  else drawRows();
}
