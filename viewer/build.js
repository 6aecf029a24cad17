// Bundles the viewer into one script and one style sheet, which ship in the wheel. `node build.js --check` compares
// what is there with what the sources make, and fails where they differ.
import { build } from "esbuild";
import { readFile, writeFile, mkdir } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import path from "node:path";

const here = path.dirname(fileURLToPath(import.meta.url));
const target = path.join(here, "../src/abele/report/static");
const LIMIT = 120 * 1024; // bytes of script and style together, compressed

const made = await build({
  entryPoints: { viewer: path.join(here, "src/main.js") },
  outdir: target,
  bundle: true,
  minify: true,
  format: "iife",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  write: false,
});
const check = process.argv.includes("--check");
let different = false;
let compressed = 0;
if (!check) await mkdir(target, { recursive: true });
for (const file of made.outputFiles) {
  compressed += gzipSync(file.contents).length;
  if (!check) await writeFile(file.path, file.contents);
  else if (!Buffer.from(file.contents).equals(await readFile(file.path).catch(() => Buffer.alloc(0)))) {
    console.error(`${path.basename(file.path)} is not what its sources make: run \`make viewer\` and commit it`);
    different = true;
  }
}
console.log(`script and style: ${(compressed / 1024).toFixed(1)} KB compressed, limit ${LIMIT / 1024}`);
process.exitCode = different || compressed > LIMIT ? 1 : 0;
