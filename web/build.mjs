// Builds the two scripts of the page without a server: the page, whose back end is web/page/backend.js, and its worker.

import { build } from "esbuild";
import { fileURLToPath } from "node:url";

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const browserBackend = {
  name: "browser-backend",
  setup: ({ onResolve }) => {
    onResolve({ filter: /^\.\/backend\.js$/ }, () => ({ path: here("page/backend.js") }));
  },
};
// Both are classic scripts: browsers refuse modules, and workers that are modules, on `file:` pages.
const options = { bundle: true, format: "iife", minify: true, target: "es2022", legalComments: "eof", charset: "utf8", logOverride: { "empty-import-meta": "silent" } };
const out = process.argv[2];

await build({ ...options, entryPoints: [here("../src/primavista/serve/page/main.js")], outfile: `${out}/page.js`, plugins: [browserBackend] });
await build({ ...options, entryPoints: [here("learner/worker.js")], outfile: `${out}/worker.js` });
