// Pictures of a report's pages for the documents: `node viewer/screenshots.js REPORT FOLDER`, from a report of
// `abele profile resnet18 --train --batch 8 --system m2000 --advice --report DIR`.

import path from "node:path";
import { closeAll, serveStore, visit } from "./tests/harness.js";

const PAGES = ["verdict", "memory", "timeline"];

const [report, folder] = process.argv.slice(2);
if (!report || !folder) throw new Error("Give a report and the folder for the pictures.");
const served = await serveStore(report);
for (const page of PAGES) {
  await visit(served, "#" + page, async (tab) => { await tab.screenshot({ path: path.join(folder, page + ".png") }); });
}
await closeAll();
